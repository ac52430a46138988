//! A file system as a disk without power would have it: what was synced, and what was not.
//!
//! It is rebuilt from strace's log of a program. A file's content is durable once the file was synced, and its name once its
//! folder was. After a power loss, a disk may have nothing else, or the names but not the contents.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// System calls that change files.
pub const CALLS: &str = "openat,open,creat,close,dup,dup2,dup3,fcntl,lseek,write,pwrite64,writev,pwritev,pwritev2,ftruncate,fallocate,\
                         fsync,fdatasync,syncfs,sync,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,\
                         mkdir,mkdirat,rmdir,copy_file_range,sendfile";

/// Content of a folder by name, in inodes.
type Entries = BTreeMap<String, usize>;

#[derive(Debug, Clone)]
enum Inode {
    File {
        data: Vec<u8>,
        durable: Vec<u8>,
    },
    Folder {
        entries: Entries,
        durable: Entries,
    },
    /// A symbolic link, which is durable with its name.
    Link {
        target: PathBuf,
    },
}

/// Content of a disk that a power loss takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Nothing that was not synced.
    All,
    /// Names and folders, but no content that was not synced.
    Contents,
}

/// Files below a folder, with what is durable of them.
#[derive(Debug, Clone)]
pub struct Disk {
    root: PathBuf,
    inodes: Vec<Inode>,
    /// Open files by descriptor.
    open: HashMap<i64, Rc<RefCell<OpenFile>>>,
}

#[derive(Debug, Clone, Copy)]
struct OpenFile {
    inode: usize,
    offset: usize,
    appends: bool,
}

impl Disk {
    /// Returns an empty folder, whose own name is durable.
    pub fn new(root: &Path) -> Disk {
        let folder = Inode::Folder { entries: Entries::new(), durable: Entries::new() };
        Disk { root: root.to_path_buf(), inodes: vec![folder], open: HashMap::new() }
    }

    /// Writes the files that are left after a power loss.
    pub fn write(&self, loss: Loss, to: &Path) {
        self.write_folder(0, loss, to);
    }

    fn write_folder(&self, folder: usize, loss: Loss, to: &Path) {
        fs::create_dir_all(to).unwrap();
        let Inode::Folder { entries, durable } = &self.inodes[folder] else { return };
        for (name, inode) in if loss == Loss::All { durable } else { entries } {
            match &self.inodes[*inode] {
                Inode::File { durable, .. } => fs::write(to.join(name), durable).unwrap(),
                Inode::Folder { .. } => self.write_folder(*inode, loss, &to.join(name)),
                Inode::Link { target } => symlink(target, to.join(name)).unwrap(),
            }
        }
    }

    /// Applies a system call. Returns true if more or less is durable, or named, than before.
    pub fn apply(&mut self, call: &Call) -> bool {
        let numbers =
            |at: usize| call.number(at).and_then(|number| usize::try_from(number).ok()).unwrap_or_default();
        match call.name.as_str() {
            "openat" => return self.open(&call.path(0, 1), &call.arguments[2], call.result),
            "open" => return self.open(&call.absolute(0), &call.arguments[1], call.result),
            "creat" => return self.open(&call.absolute(0), "O_CREAT|O_TRUNC", call.result),
            "close" => drop(self.open.remove(&call.fd(0))),
            "dup" | "dup2" | "dup3" => self.duplicate(call),
            "fcntl" if call.arguments[1].starts_with("F_DUPFD") => self.duplicate(call),
            "lseek" => {
                if let Some(file) = self.open.get(&call.fd(0)) {
                    file.borrow_mut().offset = usize::try_from(call.result).unwrap_or_default();
                }
            }
            "write" | "writev" => {
                let mut bytes = call.bytes();
                bytes.truncate(usize::try_from(call.result).unwrap_or_default());
                self.append(call.fd(0), &bytes);
            }
            "pwrite64" | "pwritev" | "pwritev2" => {
                let mut bytes = call.bytes();
                bytes.truncate(usize::try_from(call.result).unwrap_or_default());
                let file = self.open.get(&call.fd(0)).map(|file| file.borrow().inode);
                file.into_iter().for_each(|inode| self.write_at(inode, numbers(3), &bytes));
            }
            "copy_file_range" | "sendfile" => {
                let (from, to) = if call.name == "sendfile" { (1, 0) } else { (0, 2) };
                let count = usize::try_from(call.result).unwrap_or_default();
                let bytes = self.read(call.fd(from), &call.fd_path(from), count);
                self.append(call.fd(to), &bytes);
            }
            "ftruncate" => self.resize(call.fd(0), numbers(1), true),
            "fallocate" => self.resize(call.fd(0), numbers(2) + numbers(3), false),
            "fsync" | "fdatasync" => return self.sync(call),
            "syncfs" | "sync" => {
                (0..self.inodes.len()).for_each(|inode| self.sync_inode(inode));
                return true;
            }
            "rename" => return self.rename(&call.absolute(0), &call.absolute(1)),
            "renameat" | "renameat2" => return self.rename(&call.path(0, 1), &call.path(2, 3)),
            "link" => return self.link(&call.absolute(0), &call.absolute(1)),
            "linkat" => return self.link(&call.path(0, 1), &call.path(2, 3)),
            "symlink" => return self.make_link(call.absolute(0), &call.absolute(1)),
            "symlinkat" => return self.make_link(call.absolute(0), &call.path(1, 2)),
            "unlink" | "rmdir" => return self.take(&call.absolute(0)).is_some(),
            "unlinkat" => return self.take(&call.path(0, 1)).is_some(),
            "mkdir" => return self.make_folder(&call.absolute(0)),
            "mkdirat" => return self.make_folder(&call.path(0, 1)),
            _ => {}
        }
        false
    }

    /// Returns the inode of the folder of a path, and the path's name in it. Returns `None` outside of the root.
    fn parent(&self, path: &Path) -> Option<(usize, String)> {
        let inner = path.strip_prefix(&self.root).ok()?;
        let parts: Vec<String> = inner
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            })
            .collect();
        let (name, folders) = parts.split_last()?;
        let mut inode = 0;
        for folder in folders {
            let Inode::Folder { entries, .. } = &self.inodes[inode] else { return None };
            inode = *entries.get(folder)?;
        }
        Some((inode, name.clone()))
    }

    fn entries(&mut self, folder: usize) -> Option<&mut Entries> {
        match &mut self.inodes[folder] {
            Inode::Folder { entries, .. } => Some(entries),
            Inode::File { .. } | Inode::Link { .. } => None,
        }
    }

    fn find(&self, path: &Path) -> Option<usize> {
        if path == self.root {
            return Some(0);
        }
        let (folder, name) = self.parent(path)?;
        match &self.inodes[folder] {
            Inode::Folder { entries, .. } => entries.get(&name).copied(),
            Inode::File { .. } | Inode::Link { .. } => None,
        }
    }

    fn put(&mut self, path: &Path, inode: usize) -> bool {
        let Some((folder, name)) = self.parent(path) else { return false };
        self.entries(folder).is_some_and(|entries| {
            entries.insert(name, inode);
            true
        })
    }

    fn take(&mut self, path: &Path) -> Option<usize> {
        let (folder, name) = self.parent(path)?;
        self.entries(folder)?.remove(&name)
    }

    fn make_folder(&mut self, path: &Path) -> bool {
        self.inodes.push(Inode::Folder { entries: Entries::new(), durable: Entries::new() });
        self.put(path, self.inodes.len() - 1)
    }

    fn make_link(&mut self, target: PathBuf, path: &Path) -> bool {
        self.inodes.push(Inode::Link { target });
        self.put(path, self.inodes.len() - 1)
    }

    fn open(&mut self, path: &Path, flags: &str, fd: i64) -> bool {
        let mut changed = false;
        let inode = match self.find(path) {
            Some(inode) => inode,
            None if flags.contains("O_CREAT") && self.parent(path).is_some() => {
                self.inodes.push(Inode::File { data: Vec::new(), durable: Vec::new() });
                changed = self.put(path, self.inodes.len() - 1);
                self.inodes.len() - 1
            }
            None => return false,
        };
        if let (true, Inode::File { data, .. }) = (flags.contains("O_TRUNC"), &mut self.inodes[inode]) {
            data.clear();
        }
        let file = OpenFile { inode, offset: 0, appends: flags.contains("O_APPEND") };
        self.open.insert(fd, Rc::new(RefCell::new(file)));
        changed
    }

    fn duplicate(&mut self, call: &Call) {
        if let Some(file) = self.open.get(&call.fd(0)).cloned() {
            self.open.insert(call.result, file);
        }
    }

    fn append(&mut self, fd: i64, bytes: &[u8]) {
        let Some(file) = self.open.get(&fd).cloned() else { return };
        let mut file = file.borrow_mut();
        if let (true, Inode::File { data, .. }) = (file.appends, &self.inodes[file.inode]) {
            file.offset = data.len();
        }
        self.write_at(file.inode, file.offset, bytes);
        file.offset += bytes.len();
    }

    fn write_at(&mut self, inode: usize, offset: usize, bytes: &[u8]) {
        let Inode::File { data, .. } = &mut self.inodes[inode] else { return };
        let end = offset + bytes.len();
        if data.len() < end {
            data.resize(end, 0);
        }
        data[offset..end].copy_from_slice(bytes);
    }

    /// Reads bytes of a file here, or of one elsewhere, which is unchanged since.
    fn read(&mut self, fd: i64, path: &Path, count: usize) -> Vec<u8> {
        let Some(file) = self.open.get(&fd).cloned() else {
            let mut bytes = fs::read(path).unwrap_or_default();
            bytes.truncate(count);
            return bytes;
        };
        let mut file = file.borrow_mut();
        let Inode::File { data, .. } = &self.inodes[file.inode] else { return Vec::new() };
        let bytes = data.iter().skip(file.offset).take(count).copied().collect();
        file.offset += count;
        bytes
    }

    fn resize(&mut self, fd: i64, length: usize, shrinks: bool) {
        let Some(file) = self.open.get(&fd) else { return };
        if let Inode::File { data, .. } = &mut self.inodes[file.borrow().inode]
            && (shrinks || data.len() < length)
        {
            data.resize(length, 0);
        }
    }

    fn sync(&mut self, call: &Call) -> bool {
        let inode = self
            .open
            .get(&call.fd(0))
            .map(|file| file.borrow().inode)
            .or_else(|| self.find(&call.fd_path(0)));
        inode.into_iter().for_each(|inode| self.sync_inode(inode));
        inode.is_some()
    }

    fn sync_inode(&mut self, inode: usize) {
        match &mut self.inodes[inode] {
            Inode::File { data, durable } => durable.clone_from(data),
            Inode::Folder { entries, durable } => durable.clone_from(entries),
            Inode::Link { .. } => {}
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> bool {
        let Some(inode) = self.take(from) else { return false };
        self.put(to, inode)
    }

    fn link(&mut self, from: &Path, to: &Path) -> bool {
        self.find(from).is_some_and(|inode| self.put(to, inode))
    }
}

/// A system call that succeeded.
#[derive(Debug, Clone)]
pub struct Call {
    /// Nanoseconds since the epoch.
    time: u128,
    pub name: String,
    arguments: Vec<String>,
    result: i64,
}

impl Call {
    /// Reads the logs of all threads, in order of time.
    pub fn read_all(folder: &Path) -> Vec<Call> {
        let mut calls = Vec::new();
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap();
            calls.extend(text.lines().filter_map(Call::parse));
        }
        calls.sort_by_key(|call| call.time);
        calls
    }

    /// Returns a call that makes all durable.
    pub fn sync() -> Call {
        Call { time: 0, name: "sync".to_owned(), arguments: Vec::new(), result: 0 }
    }

    /// Parses a line: `1795604333.487347325 write(1<\x2f>, "\x68\x69", 2) = 2 <0.000123>`. A call that returns a descriptor
    /// counts from its end: another thread may close the descriptor of that number while it begins.
    fn parse(line: &str) -> Option<Call> {
        let (time, rest) = line.split_once(' ')?;
        let time: u128 = time.replace('.', "").parse().ok()?;
        let (name, rest) = rest.split_once('(')?;
        let lasted = rest.rsplit_once(" <").and_then(|(_, text)| text.strip_suffix('>')?.parse::<f64>().ok());
        let opens = ["open", "openat", "creat", "dup", "dup2", "dup3", "fcntl"].contains(&name);
        let time = time + lasted.filter(|_| opens).map_or(0, |seconds| (seconds * 1e9) as u128);
        let (arguments, result) = rest.rsplit_once(" = ")?;
        let arguments = arguments.trim_end().strip_suffix(')')?;
        let digits: String = result.chars().take_while(|c| c.is_ascii_digit()).collect();
        // Strings are in hexadecimal, so that commas and brackets are those of the form.
        let arguments = arguments.split(", ").map(str::to_owned).collect();
        Some(Call { time, name: name.to_owned(), arguments, result: digits.parse().ok()? })
    }

    fn number(&self, at: usize) -> Option<i64> {
        self.arguments.get(at)?.parse().ok()
    }

    fn fd(&self, at: usize) -> i64 {
        let text = self.arguments.get(at).map_or("", String::as_str);
        text.split('<').next().and_then(|number| number.parse().ok()).unwrap_or(-1)
    }

    /// Returns the path of a descriptor.
    fn fd_path(&self, at: usize) -> PathBuf {
        let text = self.arguments.get(at).and_then(|text| text.split_once('<')).map_or("", |(_, path)| path);
        PathBuf::from(String::from_utf8_lossy(&decode(text)).into_owned())
    }

    fn absolute(&self, at: usize) -> PathBuf {
        let bytes = self.arguments.get(at).map(|text| decode(text)).unwrap_or_default();
        PathBuf::from(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns a path that is relative to the folder of a descriptor.
    fn path(&self, folder: usize, at: usize) -> PathBuf {
        self.fd_path(folder).join(self.absolute(at))
    }

    /// Returns all bytes that the call was given.
    fn bytes(&self) -> Vec<u8> {
        let texts = self.arguments.iter().skip(1).filter_map(|text| text.split_once('"'));
        texts.flat_map(|(_, text)| decode(text)).collect()
    }
}

/// Returns the bytes of `\x68\x69`, whatever surrounds them.
fn decode(text: &str) -> Vec<u8> {
    text.split("\\x").skip(1).filter_map(|digits| u8::from_str_radix(digits.get(..2)?, 16).ok()).collect()
}

#[test]
fn only_what_was_synced_is_left() {
    let log = "1.1 mkdir(\"\\x2f\\x72\\x2f\\x64\", 0777) = 0\n\
               1.2 openat(AT_FDCWD<\\x2f>, \"\\x2f\\x72\\x2f\\x64\\x2f\\x61\", O_WRONLY|O_CREAT, 0600) = 5<\\x2f>\n\
               1.3 write(5<\\x2f>, \"\\x68\\x69\", 2) = 2\n\
               1.4 fsync(5<\\x2f>) = 0\n\
               1.5 write(5<\\x2f>, \"\\x21\", 1) = 1\n\
               1.6 rename(\"\\x2f\\x72\\x2f\\x64\\x2f\\x61\", \"\\x2f\\x72\\x2f\\x64\\x2f\\x62\") = 0\n\
               1.7 fsync(6<\\x2f\\x72\\x2f\\x64>) = 0\n\
               1.8 unlink(\"\\x2f\\x72\\x2f\\x64\\x2f\\x62\") = -1 ENOENT (No such file or directory)\n\
               1.9 fsync(7<\\x2f\\x72>) = 0\n";
    let mut disk = Disk::new(Path::new("/r"));
    let mut names = Vec::new();
    for call in log.lines().filter_map(Call::parse) {
        disk.apply(&call);
        let states = [Loss::All, Loss::Contents].map(|loss| {
            let folder = tempfile::tempdir().unwrap();
            disk.write(loss, folder.path());
            let content = |name: &str| fs::read_to_string(folder.path().join("d").join(name)).ok();
            (folder.path().join("d").exists(), content("a"), content("b"))
        });
        names.push(states);
    }
    let hi = Some("hi".to_owned());
    // The failed call is not in the log.
    assert_eq!(names.len(), 8);
    assert_eq!(names[0], [(false, None, None), (true, None, None)]);
    assert_eq!(names[2][1], (true, Some(String::new()), None));
    assert_eq!(names[4], [(false, None, None), (true, hi.clone(), None)]);
    assert_eq!(names[6], [(false, None, None), (true, None, hi.clone())]);
    assert_eq!(names[7], [(true, None, hi.clone()), (true, None, hi)]);
}
