//! Publishes the volume of a node that `gpuvol dev up` has started to more pods of that node, as kubelet does it, and says
//! where: one line for each. Unpublishes when its standard input ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use gpuvol_csi::dev::device::{Chosen, Wish};
use gpuvol_csi::dev::kubelet::{Kubelet, Volume};
use gpuvol_csi::dev::node::status;
use gpuvol_csi::dev::record::{Layout, Record};
use gpuvol_csi::dev::up::volume_name;

const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Parser, Debug)]
struct Arguments {
    /// State directory of the node.
    #[arg(long)]
    state: PathBuf,
    /// How many pods.
    #[arg(long)]
    pods: u32,
}

fn main() {
    let arguments = Arguments::parse();
    let record = Record::read(&arguments.state).expect("dev.json").expect("no node there");
    let layout = Layout { state: arguments.state };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let below = record.mount.parent().expect("a mount is in a directory").to_owned();
    let target = |n: u32| below.join(format!("{}-pod-{n}", record.name));
    let (mut kubelet, volume) = runtime.block_on(find(&layout, &record));
    for n in 0..arguments.pods {
        let pod = format!("pod-{n}");
        runtime.block_on(kubelet.publish(&volume, &target(n), &pod)).expect("NodePublishVolume");
        println!("{}", target(n).display());
    }
    // Not before every publish is there does the reader go on.
    println!();
    std::io::stdin().read_to_end(&mut Vec::new()).expect("standard input");
    for n in 0..arguments.pods {
        runtime.block_on(kubelet.unpublish(&volume.id, &target(n), PATIENCE)).expect("NodeUnpublishVolume");
    }
}

/// Creating it again gives the volume that is there.
async fn find(layout: &Layout, record: &Record) -> (Kubelet, Volume) {
    let mut kubelet = Kubelet::connect(&layout.plugin_socket()).await.expect("the plugin");
    let wish: Wish = record.wanted.device.parse().expect("a device");
    let chosen: Chosen = wish.choose(&status(layout, PATIENCE).await.expect("the store")).expect("a device");
    let created = kubelet.create(&volume_name(&record.name), record.wanted.capacity, chosen.parameters()).await;
    (kubelet, created.expect("CreateVolume"))
}
