//! The FUSE shell: it passes requests to [`World`] and keeps what FUSE needs beside, inode numbers and open files. Nothing is
//! cached by the kernel: files are opened with direct I/O, names and attributes are valid for no time.

use super::shared::Shared;
use super::tree::{Caller, Node};
use super::world::World;
use fuser::{
    AccessFlags, BsdFileFlags, Errno as FuseErrno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

const NO_TIME: Duration = Duration::ZERO;
/// sysfs shows every file as one page.
const PAGE: u32 = 4096;
/// The most open files at a time: ENFILE beyond.
const MAX_OPEN: usize = 65_536;

/// The numbers of the paths that the kernel knows of. A path is kept as long as the kernel remembers it.
#[derive(Debug)]
struct Inodes {
    paths: HashMap<u64, (String, u64)>,
    numbers: HashMap<String, u64>,
    next: u64,
}

impl Inodes {
    fn new() -> Self {
        Self {
            paths: HashMap::new(),
            numbers: HashMap::new(),
            next: INodeNo::ROOT.0 + 1,
        }
    }

    fn path(&self, number: INodeNo) -> Option<String> {
        if number == INodeNo::ROOT {
            return Some(String::new());
        }
        self.paths.get(&number.0).map(|(path, _)| path.clone())
    }

    /// The number of a path that is handed to the kernel once more.
    fn number(&mut self, path: String) -> INodeNo {
        let number = *self.numbers.entry(path.clone()).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        self.paths.entry(number).or_insert((path, 0)).1 += 1;
        INodeNo(number)
    }

    fn forget(&mut self, number: INodeNo, times: u64) {
        if let Some((path, known)) = self.paths.get_mut(&number.0) {
            *known = known.saturating_sub(times);
            if *known == 0 {
                self.numbers.remove(path);
                self.paths.remove(&number.0);
            }
        }
    }
}

/// The open files: the text of each as it was when it was last read from its beginning.
#[derive(Debug, Default)]
struct Open {
    texts: HashMap<u64, String>,
    next: u64,
}

/// The file system.
pub(super) struct Shell {
    shared: Arc<Shared>,
    inodes: Mutex<Inodes>,
    open: Mutex<Open>,
    since: SystemTime,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left is still a table of inodes.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fuse(errno: Errno) -> FuseErrno {
    FuseErrno::from_i32(errno.raw_os_error())
}

fn caller(request: &Request) -> Caller {
    Caller {
        uid: request.uid(),
        pid: request.pid(),
    }
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

fn below(path: &str, name: &OsStr) -> Result<String, Errno> {
    let name = name.to_str().ok_or(Errno::NOENT)?;
    Ok(if path.is_empty() {
        name.into()
    } else {
        format!("{path}/{name}")
    })
}

impl Shell {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            inodes: Mutex::new(Inodes::new()),
            open: Mutex::new(Open::default()),
            since: SystemTime::now(),
        }
    }

    /// The world, unless the emulator has ended and only an open file keeps the tree.
    fn world(&self) -> Result<MutexGuard<'_, World>, Errno> {
        self.shared.open_world().ok_or(Errno::NODEV)
    }

    fn path(&self, number: INodeNo) -> Result<String, Errno> {
        lock(&self.inodes).path(number).ok_or(Errno::NOENT)
    }

    fn attributes(&self, number: INodeNo, node: &Node) -> FileAttr {
        let (kind, perm, size, nlink) = match node {
            Node::Dir => (FileType::Directory, 0o755, 0, 2),
            Node::File(mode) => (FileType::RegularFile, *mode, u64::from(PAGE), 1),
            Node::Link(target) => (FileType::Symlink, 0o777, target.len() as u64, 1),
        };
        FileAttr {
            ino: number,
            size,
            blocks: 0,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE,
            flags: 0,
        }
    }

    fn attributes_of(&self, number: INodeNo) -> Result<FileAttr, Errno> {
        let path = self.path(number)?;
        let node = self.world()?.node(&parts(&path)).ok_or(Errno::NOENT)?;
        Ok(self.attributes(number, &node))
    }

    fn entry(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let path = below(&self.path(parent)?, name)?;
        let node = self.world()?.node(&parts(&path)).ok_or(Errno::NOENT)?;
        let number = lock(&self.inodes).number(path);
        Ok(self.attributes(number, &node))
    }

    fn start(&self, request: &Request, number: INodeNo, mode: OpenAccMode) -> Result<FileHandle, Errno> {
        let path = self.path(number)?;
        let (read, write) = (mode != OpenAccMode::O_WRONLY, mode != OpenAccMode::O_RDONLY);
        self.world()?.open(&parts(&path), read, write, caller(request))?;
        let mut open = lock(&self.open);
        if open.texts.len() >= MAX_OPEN {
            return Err(Errno::NFILE);
        }
        open.next += 1;
        let handle = open.next;
        open.texts.insert(handle, String::new());
        Ok(FileHandle(handle))
    }

    /// A piece of a file. From its beginning it is read anew; further on it is what it was then, so that a reader sees one
    /// value and not the seam of two.
    fn piece(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
    ) -> Result<String, Errno> {
        if offset == 0 {
            let path = self.path(number)?;
            let text = self.world()?.read(&parts(&path), caller(request))?;
            lock(&self.open).texts.insert(handle.0, text.clone());
            return Ok(text);
        }
        let open = lock(&self.open);
        let text = open.texts.get(&handle.0).map(String::as_str).unwrap_or_default();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(text.get(from..).unwrap_or_default().to_string())
    }

    fn change(&self, act: impl FnOnce(&mut World) -> Result<(), Errno>) -> Result<(), Errno> {
        act(&mut *self.world()?)?;
        self.shared.wake();
        Ok(())
    }
}

fn empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(fuse(errno)),
    }
}

impl Filesystem for Shell {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.entry(parent, name) {
            Ok(attributes) => reply.entry(&NO_TIME, &attributes, Generation(0)),
            Err(errno) => reply.error(fuse(errno)),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        lock(&self.inodes).forget(number, times);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes_of(number) {
            Ok(attributes) => reply.attr(&NO_TIME, &attributes),
            Err(errno) => reply.error(fuse(errno)),
        }
    }

    /// Truncating, which comes with `>` in a shell, changes nothing; owners and modes are as they are.
    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.or(uid).or(gid).is_some() {
            return reply.error(FuseErrno::EPERM);
        }
        match self.attributes_of(number) {
            Ok(attributes) => reply.attr(&NO_TIME, &attributes),
            Err(errno) => reply.error(fuse(errno)),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let target = self
            .path(number)
            .and_then(|path| match self.world()?.node(&parts(&path)) {
                Some(Node::Link(target)) => Ok(target),
                Some(_) => Err(Errno::INVAL),
                None => Err(Errno::NOENT),
            });
        match target {
            Ok(target) => reply.data(target.as_bytes()),
            Err(errno) => reply.error(fuse(errno)),
        }
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let made = self.path(parent).and_then(|path| {
            let path = below(&path, name)?;
            self.change(|world| world.mkdir(&parts(&path), caller(request)))?;
            self.entry(parent, name)
        });
        match made {
            Ok(attributes) => reply.entry(&NO_TIME, &attributes, Generation(0)),
            Err(errno) => reply.error(fuse(errno)),
        }
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.path(parent).and_then(|path| {
            let path = below(&path, name)?;
            self.change(|world| world.rmdir(&parts(&path), caller(request)))
        });
        empty(reply, result);
    }

    /// sysfs and the control groups let nobody make a file.
    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(FuseErrno::EACCES);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(FuseErrno::EPERM);
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.start(request, number, flags.acc_mode()) {
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO),
            Err(errno) => reply.error(fuse(errno)),
        }
    }

    fn read(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.piece(request, number, handle, offset) {
            Ok(text) => reply.data(&text.as_bytes()[..text.len().min(size as usize)]),
            Err(errno) => reply.error(fuse(errno)),
        }
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let result = self
            .path(number)
            .and_then(|path| self.change(|world| world.write(&parts(&path), data, caller(request))));
        match result {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(fuse(errno)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.open).texts.remove(&handle.0);
        reply.ok();
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = self
            .path(number)
            .and_then(|path| self.world()?.list(&parts(&path)).ok_or(Errno::NOTDIR));
        let entries = match entries {
            Ok(entries) => entries,
            Err(errno) => return reply.error(fuse(errno)),
        };
        let dots = [(".".to_string(), Node::Dir), ("..".to_string(), Node::Dir)];
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (name, node)) in dots.into_iter().chain(entries).enumerate().skip(skip) {
            let kind = match node {
                Node::Dir => FileType::Directory,
                Node::File(_) => FileType::RegularFile,
                Node::Link(_) => FileType::Symlink,
            };
            // The number that the kernel uses is the one that a lookup gives; here any that is not zero will do.
            if reply.add(INodeNo(at as u64 + 1), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn access(&self, request: &Request, number: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let result = self.path(number).and_then(|path| {
            let (read, write) = (mask.contains(AccessFlags::R_OK), mask.contains(AccessFlags::W_OK));
            self.world()?.access(&parts(&path), read, write, caller(request))
        });
        empty(reply, result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_number_until_the_kernel_forgets_it() {
        let mut inodes = Inodes::new();
        let first = inodes.number("a/b".into());
        assert_eq!(inodes.number("a/b".into()), first);
        assert_ne!(inodes.number("a".into()), first);
        inodes.forget(first, 1);
        assert_eq!(inodes.path(first), Some("a/b".into()));
        inodes.forget(first, 1);
        assert_eq!(inodes.path(first), None);
        assert_ne!(inodes.number("a/b".into()), first);
        assert_eq!(inodes.path(INodeNo::ROOT), Some(String::new()));
    }
}
