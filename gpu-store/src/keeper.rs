//! The keeper: a process that only holds file descriptors under names, so that memory outlives every other process.
//!
//! It knows three calls: hold, drop, list. It never looks at what a descriptor is, and it is almost never changed, so
//! that it need not be replaced when the store is. Whoever can connect may do everything: its socket lies in a directory
//! that only root of the node reaches.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvol_protocol::keeping::{Hold, KeeperOp, KeeperReply, KeeperRequest, List, MAX_KEY, PAGE};
use gpuvol_protocol::{Channel, Code, Fault, FrameError, Limits};

/// Most connections at once: store, mounter, and their successors.
const MAX_CONNECTIONS: usize = 16;
/// Descriptors that the keeper leaves to itself, out of the process limit: every connection may have a whole message of
/// them on its way.
const SPARE_FDS: usize = MAX_CONNECTIONS * PAGE + 64;
/// How long the keeper lets a shortage pass before it accepts again.
const PAUSE: Duration = Duration::from_millis(50);

type Held = Arc<Mutex<Table>>;

#[derive(Debug)]
struct Table {
    fds: BTreeMap<String, Arc<OwnedFd>>,
    limit: usize,
}

/// Serves a listener until the process ends. No shortage of anything ends it: that would lose everything it holds.
pub fn serve(listener: &UnixListener, limit: usize) -> ! {
    let held: Held = Arc::new(Mutex::new(Table { fds: BTreeMap::new(), limit: limit.saturating_sub(SPARE_FDS) }));
    let connections = Arc::new(());
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::error!(%error, "no connection can be accepted");
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        if Arc::strong_count(&connections) > MAX_CONNECTIONS {
            tracing::warn!("refused a connection: {MAX_CONNECTIONS} are open");
            continue;
        }
        let (held, token) = (held.clone(), connections.clone());
        let spawned = std::thread::Builder::new().name("keeper".into()).spawn(move || {
            if let Err(error) = converse(stream, &held) {
                tracing::warn!(%error, "a connection ended");
            }
            drop(token);
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a connection");
            std::thread::sleep(PAUSE);
        }
    }
}

fn converse(stream: UnixStream, held: &Held) -> Result<(), FrameError> {
    let mut channel = Channel::new(stream, Limits { frame_deadline: Duration::from_secs(30), ..Limits::default() });
    while let Some((request, fds)) = channel.receive::<KeeperRequest>(None)? {
        let (reply, out) = match request.op {
            Some(KeeperOp::Hold(hold)) => (reply_of(take(held, hold, fds), held), Vec::new()),
            Some(KeeperOp::Drop(drop)) => (reply_of(release(held, &drop.keys), held), Vec::new()),
            Some(KeeperOp::List(list)) => page(held, &list),
            None => (reply_of(Err(invalid("an empty request")), held), Vec::new()),
        };
        let borrowed: Vec<BorrowedFd<'_>> = out.iter().map(|fd| fd.as_fd()).collect();
        channel.send(&reply, &borrowed)?;
    }
    Ok(())
}

fn take(held: &Held, hold: Hold, fds: Vec<OwnedFd>) -> Result<(), Fault> {
    if hold.keys.len() != fds.len() {
        return Err(invalid(format!("{} names for {} descriptors", hold.keys.len(), fds.len())));
    }
    if let Some(key) = hold.keys.iter().find(|k| k.is_empty() || k.len() > MAX_KEY) {
        return Err(invalid(format!("a name of {} bytes; 1 to {MAX_KEY} are allowed", key.len())));
    }
    let replaced: Vec<_> = {
        let mut table = lock(held);
        let new = hold.keys.iter().filter(|k| !table.fds.contains_key(*k)).count();
        if table.fds.len() + new > table.limit {
            let message = format!("the keeper holds {} of at most {} descriptors", table.fds.len(), table.limit);
            return Err(Fault::new(Code::LimitExceeded, message));
        }
        hold.keys.into_iter().zip(fds).filter_map(|(key, fd)| table.fds.insert(key, Arc::new(fd))).collect()
    };
    // Closing the last descriptor of large memory takes time: not under the lock.
    drop(replaced);
    Ok(())
}

fn release(held: &Held, keys: &[String]) -> Result<(), Fault> {
    let dropped: Vec<_> = {
        let mut table = lock(held);
        keys.iter().filter_map(|key| table.fds.remove(key)).collect()
    };
    drop(dropped);
    Ok(())
}

fn page(held: &Held, list: &List) -> (KeeperReply, Vec<Arc<OwnedFd>>) {
    let table = lock(held);
    let from = if list.after.as_str() >= list.prefix.as_str() && !list.after.is_empty() {
        Bound::Excluded(list.after.as_str())
    } else {
        Bound::Included(list.prefix.as_str())
    };
    let mut range =
        table.fds.range::<str, _>((from, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(&list.prefix));
    let page: Vec<_> = range.by_ref().take(PAGE).map(|(key, fd)| (key.clone(), fd.clone())).collect();
    let more = range.next().is_some();
    let (keys, fds) = page.into_iter().unzip();
    (KeeperReply { keys, more, held: table.fds.len() as u64, ..KeeperReply::default() }, fds)
}

fn reply_of(result: Result<(), Fault>, held: &Held) -> KeeperReply {
    KeeperReply { fault: result.err(), held: lock(held).fds.len() as u64, ..KeeperReply::default() }
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

fn lock(held: &Held) -> std::sync::MutexGuard<'_, Table> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
