//! Bytes that a peer may send, as frames and as every message: typed errors only.
#![no_main]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gpuvol_protocol::admin::{AdminReply, AdminRequest};
use gpuvol_protocol::keeping::{KeeperReply, KeeperRequest};
use gpuvol_protocol::message::{Hello, Op, Reply, Request, Welcome};
use gpuvol_protocol::types::parse_size;
use gpuvol_protocol::{Channel, DeviceUuid, Limits, ObjectPath, VolumeId};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|data: &[u8]| {
    let Ok((ours, mut theirs)) = UnixStream::pair() else { return };
    let limits = Limits { max_frame: 4096, max_fds: 2, frame_deadline: Duration::from_millis(200) };
    let mut channel = Channel::new(ours, limits);
    if theirs.write_all(data).is_err() || theirs.shutdown(std::net::Shutdown::Write).is_err() {
        return;
    }
    if let Ok(Some((request, fds))) = channel.receive::<Request>(Some(Duration::from_millis(200))) {
        assert!(fds.is_empty());
        if let Some(Op::Stat(stat)) = request.op {
            let _ = ObjectPath::new(stat.path);
        }
    }
    let _ = Hello::decode(data);
    let _ = Welcome::decode(data);
    let _ = Request::decode(data);
    let _ = Reply::decode(data);
    let _ = AdminRequest::decode(data);
    let _ = AdminReply::decode(data);
    let _ = KeeperRequest::decode(data);
    let _ = KeeperReply::decode(data);
    if let Ok(path) = ObjectPath::new(data) {
        assert!(path.components().all(|name| !name.is_empty() && name != b".." && name != b"."));
    }
    let _ = DeviceUuid::try_from(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = parse_size(text);
        let _ = VolumeId::new(text);
        let _ = text.parse::<DeviceUuid>();
    }
});
