//! Names: directories that hold objects and directories. No content, no quota.
//!
//! A directory is known by its id, so moving one is a change of one name however much is below it. A name has a cookie:
//! its place in its directory, which it keeps for as long as it is there, so that a listing in several parts neither
//! misses nor repeats a name that was there all the time.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use gpuvol_protocol::ObjectPath;

use super::record::Meta;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    Directory(u64),
    /// An object's version, a draft, or a symbolic link.
    Object(u64),
}

impl Child {
    pub fn id(self) -> u64 {
        match self {
            Child::Directory(id) | Child::Object(id) => id,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Named {
    child: Child,
    cookie: u64,
}

#[derive(Debug, Default)]
struct Directory {
    children: BTreeMap<Vec<u8>, Named>,
    order: BTreeMap<u64, Vec<u8>>,
    parent: u64,
    directories: u32,
    meta: Meta,
}

impl Directory {
    /// Gives a name a new child. One that was there keeps its cookie; another gets the one that is asked for, or the next.
    fn set(&mut self, name: &[u8], child: Child, cookie: u64) -> Option<Child> {
        let before = self.children.get(name).copied();
        let cookie = match (before, cookie) {
            (Some(named), _) => named.cookie,
            (None, 0) => self.order.last_key_value().map_or(1, |(last, _)| last + 1),
            (None, cookie) => cookie,
        };
        self.children.insert(name.to_vec(), Named { child, cookie });
        self.order.insert(cookie, name.to_vec());
        self.count(child, 1);
        before.map(|named| {
            self.count(named.child, -1);
            named.child
        })
    }

    fn take(&mut self, name: &[u8]) -> Option<Child> {
        let named = self.children.remove(name)?;
        self.order.remove(&named.cookie);
        self.count(named.child, -1);
        Some(named.child)
    }

    fn count(&mut self, child: Child, by: i32) {
        if matches!(child, Child::Directory(_)) {
            self.directories = self.directories.saturating_add_signed(by);
        }
    }
}

/// Why a path does not lead where it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    NotFound,
    /// A component before the last is an object.
    NotADirectory,
}

/// A name with its cookie.
pub type Listed<'t> = (&'t [u8], Child, u64);

/// One volume's names.
#[derive(Debug)]
pub struct Tree {
    root: u64,
    directories: HashMap<u64, Directory>,
    /// Where everything but the root is: its directory and its name there.
    places: HashMap<u64, (u64, Vec<u8>)>,
}

impl Tree {
    pub fn new(root: u64, meta: Meta) -> Self {
        let top = Directory { parent: root, meta, ..Directory::default() };
        Self { root, directories: HashMap::from([(root, top)]), places: HashMap::new() }
    }

    pub fn root(&self) -> u64 {
        self.root
    }

    /// Objects and directories, the root not counted.
    pub fn entries(&self) -> u64 {
        self.places.len() as u64
    }

    pub fn meta(&self, directory: u64) -> Option<&Meta> {
        self.directories.get(&directory).map(|d| &d.meta)
    }

    pub fn meta_mut(&mut self, directory: u64) -> Option<&mut Meta> {
        self.directories.get_mut(&directory).map(|d| &mut d.meta)
    }

    /// When a directory was last changed, in milliseconds since the epoch.
    pub fn time_ms(&self, directory: u64) -> u64 {
        self.meta(directory).map_or(0, |m| u64::try_from(m.mtime_ns / 1_000_000).unwrap_or(0))
    }

    pub fn is_directory(&self, id: u64) -> bool {
        self.directories.contains_key(&id)
    }

    /// How many directories a directory has.
    pub fn subdirectories(&self, directory: u64) -> u32 {
        self.directories.get(&directory).map_or(0, |d| d.directories)
    }

    /// A directory's own directory; the root's is itself.
    pub fn parent(&self, directory: u64) -> u64 {
        self.directories.get(&directory).map_or(self.root, |d| d.parent)
    }

    /// Where a node's name is: directory and name; `None` for the root and for what has no name.
    pub fn place(&self, node: u64) -> Option<(u64, &[u8])> {
        self.places.get(&node).map(|(parent, name)| (*parent, name.as_slice()))
    }

    /// A node's path from the root; `None` where it has none.
    pub fn path(&self, node: u64) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = node;
        while at != self.root {
            let (parent, name) = self.place(at)?;
            names.push(name);
            at = parent;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    pub fn child(&self, parent: u64, name: &[u8]) -> Option<Child> {
        self.directories.get(&parent)?.children.get(name).map(|n| n.child)
    }

    pub fn lookup(&self, path: &ObjectPath) -> Result<Child, PathError> {
        let mut at = Child::Directory(self.root);
        for name in path.components() {
            let Child::Directory(directory) = at else { return Err(PathError::NotADirectory) };
            at = self.child(directory, name).ok_or(PathError::NotFound)?;
        }
        Ok(at)
    }

    /// How far a path's directories exist: the deepest one that does, and the names still missing below it.
    pub fn descend<'p>(&self, directories: &'p ObjectPath) -> Result<(u64, Vec<&'p [u8]>), PathError> {
        let mut at = self.root;
        let mut names = directories.components();
        while let Some(name) = names.next() {
            match self.child(at, name) {
                Some(Child::Directory(next)) => at = next,
                Some(Child::Object(_)) => return Err(PathError::NotADirectory),
                None => return Ok((at, std::iter::once(name).chain(names).collect())),
            }
        }
        Ok((at, Vec::new()))
    }

    /// A directory in byte order of names, from just after `after`.
    pub fn after(&self, directory: u64, after: &[u8]) -> impl Iterator<Item = (&[u8], Child)> {
        let start = if after.is_empty() { Bound::Unbounded } else { Bound::Excluded(after) };
        let found = self.directories.get(&directory).into_iter();
        found
            .flat_map(move |d| d.children.range::<[u8], _>((start, Bound::Unbounded)))
            .map(|(name, named)| (name.as_slice(), named.child))
    }

    /// A directory in the order of its cookies, from just after `after`.
    pub fn listed(&self, directory: u64, after: u64) -> impl Iterator<Item = Listed<'_>> {
        let found = self.directories.get(&directory).into_iter();
        found.flat_map(move |d| {
            let order = d.order.range((Bound::Excluded(after), Bound::Unbounded));
            order.filter_map(|(cookie, name)| Some((name.as_slice(), d.children.get(name)?.child, *cookie)))
        })
    }

    pub fn is_empty(&self, directory: u64) -> bool {
        self.directories.get(&directory).is_none_or(|d| d.children.is_empty())
    }

    /// Is `inner` the directory `outer` or somewhere below it?
    pub fn is_within(&self, inner: u64, outer: u64) -> bool {
        let mut at = inner;
        while at != outer {
            match self.directories.get(&at) {
                Some(d) if at != self.root => at = d.parent,
                _ => return false,
            }
        }
        true
    }

    pub fn make_directory(&mut self, parent: u64, name: &[u8], id: u64, meta: Meta, cookie: u64) -> Result<(), String> {
        if self.child(parent, name).is_some() {
            return Err(format!("{:?} exists already", String::from_utf8_lossy(name)));
        }
        let time = meta.mtime_ns;
        self.set(parent, name, Child::Directory(id), cookie)?;
        self.directories.insert(id, Directory { parent, meta, ..Directory::default() });
        if cookie == 0 {
            self.touch(parent, time);
        }
        Ok(())
    }

    /// Puts an object at a name; answers the version that was there.
    pub fn put_object(&mut self, parent: u64, name: &[u8], version: u64, cookie: u64) -> Result<Option<u64>, String> {
        if let Some(Child::Directory(_)) = self.child(parent, name) {
            return Err("an object would replace a directory".to_owned());
        }
        Ok(self.set(parent, name, Child::Object(version), cookie)?.map(Child::id))
    }

    /// Takes a name away; a directory must be empty.
    pub fn remove(&mut self, parent: u64, name: &[u8]) -> Result<Child, String> {
        let child = self.child(parent, name).ok_or("no such name")?;
        if let Child::Directory(id) = child {
            if !self.is_empty(id) {
                return Err("the directory is not empty".to_owned());
            }
            self.directories.remove(&id);
        }
        self.directory(parent)?.take(name);
        self.places.remove(&child.id());
        Ok(child)
    }

    /// Moves a name; what was at the destination (an object, or an empty directory) is taken away and answered.
    pub fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<Option<Child>, String> {
        let child = self.child(from.0, from.1).ok_or("no such name")?;
        let there = self.child(to.0, to.1);
        if there == Some(child) {
            return Ok(None);
        }
        if let Some(Child::Directory(id)) = there {
            if !self.is_empty(id) {
                return Err("the directory is not empty".to_owned());
            }
            self.directories.remove(&id);
        }
        self.directory(from.0)?.take(from.1);
        self.set(to.0, to.1, child, 0)
    }

    /// Two names change places.
    pub fn exchange(&mut self, one: (u64, &[u8]), other: (u64, &[u8])) -> Result<(), String> {
        let first = self.child(one.0, one.1).ok_or("no such name")?;
        let second = self.child(other.0, other.1).ok_or("no such name")?;
        if first == second {
            return Ok(());
        }
        self.set(one.0, one.1, second, 0)?;
        self.set(other.0, other.1, first, 0)?;
        // The first `set` took the second's place for gone, and the other way round.
        self.places.insert(second.id(), (one.0, one.1.to_vec()));
        self.places.insert(first.id(), (other.0, other.1.to_vec()));
        Ok(())
    }

    /// A directory's content changed.
    pub fn touch(&mut self, directory: u64, time_ns: i64) {
        if time_ns != 0
            && let Some(meta) = self.meta_mut(directory)
        {
            meta.mtime_ns = time_ns;
            meta.ctime_ns = time_ns;
        }
    }

    /// Every directory but the root, parents before children: `(parent, name, id, cookie)`.
    pub fn directories(&self) -> Vec<(u64, &[u8], u64, u64)> {
        let mut all = Vec::new();
        let mut queue = vec![self.root];
        while let Some(parent) = queue.pop() {
            for (name, child, cookie) in self.listed(parent, 0) {
                if let Child::Directory(id) = child {
                    all.push((parent, name, id, cookie));
                    queue.push(id);
                }
            }
        }
        all
    }

    /// Every object with a name: `(parent, name, version, cookie)`.
    pub fn objects(&self) -> impl Iterator<Item = (u64, &[u8], u64, u64)> {
        self.directories.iter().flat_map(|(parent, directory)| {
            directory.children.iter().filter_map(|(name, named)| match named.child {
                Child::Object(version) => Some((*parent, name.as_slice(), version, named.cookie)),
                Child::Directory(_) => None,
            })
        })
    }

    fn set(&mut self, parent: u64, name: &[u8], child: Child, cookie: u64) -> Result<Option<Child>, String> {
        let before = self.directory(parent)?.set(name, child, cookie);
        if let Some(before) = before {
            self.places.remove(&before.id());
        }
        self.places.insert(child.id(), (parent, name.to_vec()));
        if let Child::Directory(id) = child
            && let Some(directory) = self.directories.get_mut(&id)
        {
            directory.parent = parent;
        }
        Ok(before)
    }

    fn directory(&mut self, id: u64) -> Result<&mut Directory, String> {
        self.directories.get_mut(&id).ok_or_else(|| format!("no directory {id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ObjectPath {
        ObjectPath::new(text).unwrap()
    }

    fn empty() -> Tree {
        Tree::new(1, Meta::default())
    }

    fn tree() -> Tree {
        let mut tree = empty();
        tree.make_directory(1, b"a", 2, Meta::default(), 0).unwrap();
        tree.make_directory(2, b"b", 3, Meta::default(), 0).unwrap();
        tree.put_object(3, b"x", 10, 0).unwrap();
        tree
    }

    #[test]
    fn lookups_follow_names() {
        let tree = tree();
        assert_eq!(tree.lookup(&path("a/b/x")), Ok(Child::Object(10)));
        assert_eq!(tree.lookup(&path("")), Ok(Child::Directory(1)));
        assert_eq!(tree.lookup(&path("a/c")), Err(PathError::NotFound));
        assert_eq!(tree.lookup(&path("a/b/x/y")), Err(PathError::NotADirectory));
        assert_eq!(tree.descend(&path("a/q/r")), Ok((2, vec![&b"q"[..], b"r"])));
        assert_eq!(tree.entries(), 3);
        assert_eq!(tree.path(10).unwrap(), b"a/b/x");
        assert_eq!(tree.path(1).unwrap(), b"");
        assert_eq!(tree.path(11), None);
    }

    #[test]
    fn moving_a_directory_moves_what_is_below_it() {
        let mut tree = tree();
        assert_eq!(tree.rename((2, b"b"), (1, b"c")), Ok(None));
        assert_eq!(tree.lookup(&path("c/x")), Ok(Child::Object(10)));
        assert!(tree.is_within(3, 1) && !tree.is_within(3, 2) && tree.is_within(3, 3));
        assert_eq!((tree.entries(), tree.subdirectories(1), tree.subdirectories(2)), (3, 2, 0));
        assert_eq!(tree.path(10).unwrap(), b"c/x");
    }

    #[test]
    fn a_replaced_object_is_answered() {
        let mut tree = tree();
        tree.put_object(1, b"y", 11, 0).unwrap();
        assert_eq!(tree.rename((1, b"y"), (3, b"x")), Ok(Some(Child::Object(10))));
        assert_eq!(tree.put_object(3, b"x", 12, 0), Ok(Some(11)));
        assert_eq!(tree.entries(), 3);
        assert!(tree.remove(1, b"a").is_err());
        tree.remove(3, b"x").unwrap();
        tree.remove(2, b"b").unwrap();
        tree.remove(1, b"a").unwrap();
        assert_eq!((tree.entries(), tree.subdirectories(1)), (0, 0));
    }

    #[test]
    fn names_change_places() {
        let mut tree = tree();
        tree.put_object(1, b"y", 11, 0).unwrap();
        tree.exchange((1, b"y"), (2, b"b")).unwrap();
        assert_eq!(tree.lookup(&path("y/x")), Ok(Child::Object(10)));
        assert_eq!(tree.lookup(&path("a/b")), Ok(Child::Object(11)));
        assert_eq!((tree.path(11).unwrap(), tree.path(3).unwrap()), (b"a/b".to_vec(), b"y".to_vec()));
        assert_eq!((tree.parent(3), tree.subdirectories(1), tree.subdirectories(2)), (1, 2, 0));
    }

    #[test]
    fn names_come_in_byte_order_or_in_the_order_of_their_cookies() {
        let mut tree = empty();
        for n in [5_u8, 1, 9, 3] {
            tree.put_object(1, &[n], u64::from(n), 0).unwrap();
        }
        let names = |after: &[u8]| tree.after(1, after).map(|(name, _)| name[0]).collect::<Vec<_>>();
        assert_eq!(names(b""), [1, 3, 5, 9]);
        assert_eq!((names(&[3]), names(&[4])), (vec![5, 9], vec![5, 9]));
        let listed: Vec<_> = tree.listed(1, 0).map(|(name, _, cookie)| (name[0], cookie)).collect();
        assert_eq!(listed, [(5, 1), (1, 2), (9, 3), (3, 4)]);
    }

    #[test]
    fn a_name_keeps_its_cookie_and_later_ones_have_greater_ones() {
        let mut tree = empty();
        for n in 1..=4_u8 {
            tree.put_object(1, &[n], u64::from(n), 0).unwrap();
        }
        tree.remove(1, &[2]).unwrap();
        tree.put_object(1, &[3], 30, 0).unwrap();
        tree.rename((1, &[1]), (1, &[9])).unwrap();
        let listed: Vec<_> = tree.listed(1, 1).map(|(name, child, cookie)| (name[0], child.id(), cookie)).collect();
        assert_eq!(listed, [(3, 30, 3), (4, 4, 4), (9, 1, 5)]);
    }
}
