//! Names: ls, mv, rm, mkdir and trees that are copied.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use crate::node::{MIB, Node, args};

fn names(listing: &str) -> Vec<&str> {
    listing.lines().collect()
}

#[test]
fn listings_show_what_is_there() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    fs::write(node.plain("x"), b"12345").unwrap();
    for name in ["b", "a", "dir/inner/leaf"] {
        node.run(args!["put", "-q", node.plain("x"), data.join(name)]).ok();
    }
    assert_eq!(names(&node.run(args!["ls", &data]).ok()), ["a", "b", "dir/"]);
    assert_eq!(node.run(args!["ls", data.join("a")]).ok(), format!("{}\n", data.join("a").display()));
    let long = node.run(args!["ls", "-l", &data]).ok();
    let first: Vec<&str> = long.lines().next().unwrap().split_whitespace().collect();
    assert_eq!((first[0], first[1], first[2], first[3]), ("bytes", "5", "B", "host"));
    assert_eq!(first.last(), Some(&"a"));
    let deep = node.run(args!["ls", "-R", &data]).ok();
    assert!(deep.contains(&format!("\n{}:\nleaf\n", data.join("dir/inner").display())), "{deep}");
    let json = node.run(args!["ls", "-R", "--json", &data]).json();
    let entries = json["entries"].as_array().unwrap();
    let paths: Vec<&str> = entries.iter().map(|e| e["path"].as_str().unwrap()).collect();
    let want: Vec<PathBuf> = ["a", "b", "dir", "dir/inner", "dir/inner/leaf"].iter().map(|p| data.join(p)).collect();
    assert_eq!(paths, want.iter().map(|p| p.to_str().unwrap()).collect::<Vec<_>>());
    assert_eq!((entries[0]["type"].as_str(), entries[0]["size"].as_u64()), (Some("object"), Some(5)));
    assert_eq!((entries[2]["type"].as_str(), entries[2]["size"].as_u64()), (Some("directory"), None));
    // The working directory, ordinary directories, and a page more than the store gives at once.
    let here = node.command().current_dir(&data).arg("ls").output().unwrap();
    assert_eq!(names(std::str::from_utf8(&here.stdout).unwrap()), ["a", "b", "dir/"]);
    assert_eq!(names(&node.run(args!["ls", node.plain("")]).ok()), ["x"]);
    // Some there and some not: all are tried.
    let mixed = node.run(args!["ls", data.join("a"), data.join("none"), data.join("b")]);
    assert_eq!(String::from_utf8_lossy(&mixed.0.stdout).lines().count(), 2);
    assert!(mixed.fails(3).contains("none"));
}

#[test]
fn names_are_moved_removed_and_made() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    fs::write(node.plain("x"), b"12345").unwrap();
    node.run(args!["put", "-q", node.plain("x"), data.join("one")]).ok();
    node.run(args!["mkdir", data.join("d")]).ok();
    node.run(args!["mkdir", data.join("d")]).fails(1);
    node.run(args!["mkdir", data.join("no/such")]).fails(3);
    node.run(args!["mkdir", "-p", data.join("d"), data.join("p/q")]).ok();
    node.run(args!["mv", data.join("one"), data.join("two")]).ok();
    node.run(args!["mv", data.join("one"), data.join("two")]).fails(3);
    node.run(args!["mv", data.join("two"), data.join("d")]).ok();
    assert_eq!(names(&node.run(args!["ls", data.join("d")]).ok()), ["two"]);
    node.run(args!["put", "-q", node.plain("x"), data.join("three")]).ok();
    node.run(args!["mv", "-n", data.join("three"), data.join("d/two")]).fails(1);
    node.run(args!["rm", data.join("d")]).fails(1);
    node.run(args!["rm", "-r", &data]).fails(1);
    node.run(args!["rm", data.join("none")]).fails(3);
    node.run(args!["rm", "-f", data.join("none")]).ok();
    node.run(args!["rm", "-r", data.join("d"), data.join("p"), data.join("three")]).ok();
    assert_eq!(node.run(args!["ls", &data]).ok(), "");
    // Ordinary files are not this command's to change.
    for arguments in [args!["rm", node.plain("x")], args!["mkdir", node.plain("y")], args!["df", node.plain("x")]] {
        assert!(node.run(arguments).fails(1).contains("is on no gpu-volume"));
    }
    node.run(args!["mv", node.plain("x"), node.plain("y")]).fails(1);
    assert!(node.plain("x").exists());
}

#[test]
fn copies_go_between_volumes_and_files() {
    let node = Node::start();
    let (data, other) = (node.volume("data", 64 * MIB), node.volume("other", 64 * MIB));
    fs::create_dir_all(node.plain("tree/sub")).unwrap();
    fs::write(node.plain("tree/a"), b"a").unwrap();
    fs::write(node.plain("tree/sub/b"), vec![7; 200_000]).unwrap();
    node.run(args!["cp", node.plain("tree"), &data]).fails(1);
    node.run(args!["cp", "-r", node.plain("tree"), &data]).ok();
    node.run(args!["cp", "-r", data.join("tree"), other.join("moved")]).ok();
    node.run(args!["cp", "-r", other.join("moved"), node.plain("back")]).ok();
    assert_eq!(fs::read(node.plain("back/a")).unwrap(), b"a");
    assert_eq!(fs::read(node.plain("back/sub/b")).unwrap(), vec![7; 200_000]);
    node.run(args!["cp", node.plain("back/a"), node.plain("plain-copy")]).ok();
    assert_eq!(fs::read(node.plain("plain-copy")).unwrap(), b"a");
    let here = node.command().current_dir(node.plain("tree")).args(args!["cp", "-r", ".", data.join("here")]).status();
    assert!(here.unwrap().success());
    assert_eq!(names(&node.run(args!["ls", data.join("here")]).ok()), ["a", "sub/"]);
    for into in ["tree", "tree/x"] {
        node.run(args!["cp", "-r", data.join("tree"), data.join(into)]).fails(1);
    }
    node.run(args!["cp", data.join("tree/a"), data.join("tree/a")]).fails(1);
    node.run(args!["cp", "-n", data.join("tree/a"), other.join("moved/a")]).fails(1);
    node.run(args!["cp", data.join("tree/a"), other.join("moved/a"), data.join("none")]).fails(1);
    node.run(args!["mv", data.join("tree"), node.plain("tree-out")]).ok();
    assert_eq!(fs::read(node.plain("tree-out/sub/b")).unwrap().len(), 200_000);
    node.run(args!["stat", data.join("tree")]).fails(3);
    node.run(args!["mv", node.plain("tree-out"), &other]).ok();
    assert!(!node.plain("tree-out").exists());
    assert_eq!(node.run(args!["cat", other.join("tree-out/a")]).ok(), "a");
}

#[test]
fn any_name_is_shown_safely_and_comes_back() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    fs::write(node.plain("x"), b"12345").unwrap();
    let odd: [&[u8]; 6] =
        [b"two words", b"line\nbreak", b"not \xff\xfe text", b"\x1b[31mred", b"back\\slash", "größe".as_bytes()];
    for name in odd {
        node.run(args!["put", "-q", node.plain("x"), data.join(OsStr::from_bytes(name))]).ok();
    }
    let mut want: Vec<&[u8]> = odd.to_vec();
    want.sort_unstable();
    let text = node.run(args!["ls", &data]).ok();
    let shell = |text: &str| {
        let out = std::process::Command::new("bash").args(["-c", "printf %b \"$1\"", "-", text]).output().unwrap();
        out.stdout
    };
    assert!(!text.contains('\x1b'));
    assert_eq!(text.lines().map(shell).collect::<Vec<_>>(), want);
    let json = node.run(args!["ls", "--json", &data]).json();
    let entries = json["entries"].as_array().unwrap();
    assert_eq!(entries.iter().map(|e| shell(e["name"].as_str().unwrap())).collect::<Vec<_>>(), want);
    for (entry, name) in entries.iter().zip(want) {
        let path = OsString::from_vec(shell(entry["path"].as_str().unwrap()));
        assert_eq!(path, data.join(OsStr::from_bytes(name)));
        assert_eq!(node.run(args!["cat", path]).ok(), "12345");
    }
    let error = node.run(args!["cat", data.join("gone\n\x1b[2J")]).fails(3);
    assert!(error.lines().count() == 1 && !error.contains('\x1b'), "{error}");
}
