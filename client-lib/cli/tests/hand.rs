#![allow(dead_code, clippy::unwrap_used)]
mod node;
#[test]
fn hand() {
    let node = node::Node::with_fake_gpu();
    node.create("gpu", 512 << 20, gpuvol_protocol::message::Tier::Gpu);
    node.publish("gpu", "gpu", false);
    node.volume("data", 64 << 20);
    node.create("pvc-orphan", 64 << 20, gpuvol_protocol::message::Tier::Host);
    std::fs::write("/tmp/hand.state", node.state().to_str().unwrap()).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(90));
}
