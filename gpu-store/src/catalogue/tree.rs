//! Names: directories that hold objects and directories. No content, no quota.
//!
//! A directory is known by its id, so moving one is a change of one name however much is below it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use gpuvol_protocol::ObjectPath;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    Directory(u64),
    /// An object's version.
    Object(u64),
}

#[derive(Debug)]
struct Directory {
    children: BTreeMap<Vec<u8>, Child>,
    parent: u64,
    time_ms: u64,
}

/// Why a path does not lead where it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    NotFound,
    /// A component before the last is an object.
    NotADirectory,
}

/// One volume's names.
#[derive(Debug)]
pub struct Tree {
    root: u64,
    directories: HashMap<u64, Directory>,
    objects: u64,
}

impl Tree {
    pub fn new(root: u64) -> Self {
        let top = Directory { children: BTreeMap::new(), parent: root, time_ms: 0 };
        Self { root, directories: HashMap::from([(root, top)]), objects: 0 }
    }

    pub fn root(&self) -> u64 {
        self.root
    }

    /// Objects and directories, the root not counted.
    pub fn entries(&self) -> u64 {
        self.objects + self.directories.len() as u64 - 1
    }

    /// When a directory was made, in milliseconds since the epoch.
    pub fn time_ms(&self, directory: u64) -> u64 {
        self.directories.get(&directory).map_or(0, |d| d.time_ms)
    }

    pub fn child(&self, parent: u64, name: &[u8]) -> Option<Child> {
        self.directories.get(&parent)?.children.get(name).copied()
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

    /// A page of a directory in byte order of names, from just after `after`; whether there is more.
    pub fn page(&self, directory: u64, after: &[u8], limit: usize) -> (Vec<(&[u8], Child)>, bool) {
        let Some(directory) = self.directories.get(&directory) else { return (Vec::new(), false) };
        let start = if after.is_empty() { Bound::Unbounded } else { Bound::Excluded(after) };
        let mut range = directory.children.range::<[u8], _>((start, Bound::Unbounded));
        let page = range.by_ref().take(limit).map(|(name, child)| (name.as_slice(), *child)).collect();
        (page, range.next().is_some())
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

    pub fn make_directory(&mut self, parent: u64, name: &[u8], id: u64, time_ms: u64) -> Result<(), String> {
        let children = self.children(parent)?;
        if children.contains_key(name) {
            return Err(format!("{:?} exists already", String::from_utf8_lossy(name)));
        }
        children.insert(name.to_vec(), Child::Directory(id));
        self.directories.insert(id, Directory { children: BTreeMap::new(), parent, time_ms });
        Ok(())
    }

    /// Puts an object at a name; answers the version that was there.
    pub fn put_object(&mut self, parent: u64, name: &[u8], version: u64) -> Result<Option<u64>, String> {
        match self.children(parent)?.insert(name.to_vec(), Child::Object(version)) {
            None => {
                self.objects += 1;
                Ok(None)
            }
            Some(Child::Object(old)) => Ok(Some(old)),
            Some(Child::Directory(_)) => Err("an object would replace a directory".to_owned()),
        }
    }

    /// Takes a name away; a directory must be empty.
    pub fn remove(&mut self, parent: u64, name: &[u8]) -> Result<Child, String> {
        let child = self.child(parent, name).ok_or("no such name")?;
        if let Child::Directory(id) = child {
            if !self.is_empty(id) {
                return Err("the directory is not empty".to_owned());
            }
            self.directories.remove(&id);
        } else {
            self.objects -= 1;
        }
        self.children(parent)?.remove(name);
        Ok(child)
    }

    /// Moves a name; what was at the destination (an object, or an empty directory) is taken away and answered.
    pub fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<Option<Child>, String> {
        let child = self.child(from.0, from.1).ok_or("no such name")?;
        if self.child(to.0, to.1) == Some(child) {
            return Ok(None);
        }
        let replaced = match self.child(to.0, to.1) {
            Some(_) => Some(self.remove(to.0, to.1)?),
            None => None,
        };
        self.children(from.0)?.remove(from.1);
        self.children(to.0)?.insert(to.1.to_vec(), child);
        if let Child::Directory(id) = child
            && let Some(directory) = self.directories.get_mut(&id)
        {
            directory.parent = to.0;
        }
        Ok(replaced)
    }

    /// Every directory but the root, parents before children: `(parent, name, id, time_ms)`.
    pub fn directories(&self) -> Vec<(u64, &[u8], u64, u64)> {
        let mut all = Vec::new();
        let mut queue = vec![self.root];
        while let Some(parent) = queue.pop() {
            for (name, child) in self.directories.get(&parent).into_iter().flat_map(|d| &d.children) {
                if let Child::Directory(id) = child {
                    all.push((parent, name.as_slice(), *id, self.time_ms(*id)));
                    queue.push(*id);
                }
            }
        }
        all
    }

    /// Every object with a name: `(parent, name, version)`.
    pub fn objects(&self) -> impl Iterator<Item = (u64, &[u8], u64)> {
        self.directories.iter().flat_map(|(parent, directory)| {
            directory.children.iter().filter_map(|(name, child)| match child {
                Child::Object(version) => Some((*parent, name.as_slice(), *version)),
                Child::Directory(_) => None,
            })
        })
    }

    fn children(&mut self, directory: u64) -> Result<&mut BTreeMap<Vec<u8>, Child>, String> {
        let found = self.directories.get_mut(&directory);
        found.map(|d| &mut d.children).ok_or_else(|| format!("no directory {directory}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ObjectPath {
        ObjectPath::new(text).unwrap()
    }

    fn tree() -> Tree {
        let mut tree = Tree::new(1);
        tree.make_directory(1, b"a", 2, 0).unwrap();
        tree.make_directory(2, b"b", 3, 0).unwrap();
        tree.put_object(3, b"x", 10).unwrap();
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
    }

    #[test]
    fn moving_a_directory_moves_what_is_below_it() {
        let mut tree = tree();
        assert_eq!(tree.rename((2, b"b"), (1, b"c")), Ok(None));
        assert_eq!(tree.lookup(&path("c/x")), Ok(Child::Object(10)));
        assert!(tree.is_within(3, 1) && !tree.is_within(3, 2) && tree.is_within(3, 3));
        assert_eq!(tree.entries(), 3);
    }

    #[test]
    fn a_replaced_object_is_answered() {
        let mut tree = tree();
        tree.put_object(1, b"y", 11).unwrap();
        assert_eq!(tree.rename((1, b"y"), (3, b"x")), Ok(Some(Child::Object(10))));
        assert_eq!(tree.put_object(3, b"x", 12), Ok(Some(11)));
        assert_eq!(tree.entries(), 3);
        assert!(tree.remove(1, b"a").is_err());
        tree.remove(3, b"x").unwrap();
        tree.remove(2, b"b").unwrap();
        tree.remove(1, b"a").unwrap();
        assert_eq!(tree.entries(), 0);
    }

    #[test]
    fn pages_are_in_byte_order_and_say_whether_there_is_more() {
        let mut tree = Tree::new(1);
        for n in [5_u8, 1, 9, 3] {
            tree.put_object(1, &[n], u64::from(n)).unwrap();
        }
        let names = |after: &[u8], limit| {
            let (page, more) = tree.page(1, after, limit);
            (page.iter().map(|(name, _)| name[0]).collect::<Vec<_>>(), more)
        };
        assert_eq!(names(b"", 2), (vec![1, 3], true));
        assert_eq!(names(&[3], 2), (vec![5, 9], false));
        assert_eq!(names(&[4], 9), (vec![5, 9], false));
    }
}
