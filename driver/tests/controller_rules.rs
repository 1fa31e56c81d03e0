//! What sidecars expect of the Controller and Identity services, each rule by name.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::time::Duration;

use gpuvol_csi::csi::volume_capability::access_mode::Mode;
use gpuvol_csi::csi::volume_content_source::{SnapshotSource, Type as Source};
use gpuvol_csi::csi::{
    CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, GetCapacityRequest, ListVolumesRequest, ProbeRequest,
    Topology, TopologyRequirement, ValidateVolumeCapabilitiesRequest, VolumeContentSource,
};
use gpuvol_protocol::Code as FaultCode;
use support::fake_store::Script;
use support::{GIB, Rig, capability, create, refused};
use tonic::Code;

fn delete(id: &str) -> DeleteVolumeRequest {
    DeleteVolumeRequest { volume_id: id.to_owned(), ..DeleteVolumeRequest::default() }
}

#[tokio::test]
async fn delete_of_an_unknown_or_garbage_id_is_ok() {
    let mut rig = Rig::new().await;
    for id in ["gv-unknown", "../../etc", "a/b", "\u{0}", "Ä", &"x".repeat(5000)] {
        rig.plugin.controller.delete_volume(delete(id)).await.unwrap();
    }
    refused(rig.plugin.controller.delete_volume(delete("")).await, Code::InvalidArgument);
}

#[tokio::test]
async fn the_reported_size_is_exactly_what_was_asked() {
    let mut rig = Rig::new().await;
    for (name, required_bytes, limit_bytes, want) in
        [("a", 10 * GIB, 0, 10 * GIB), ("b", 10 * GIB + 1, 0, 10 * GIB + 1), ("c", 0, 0, GIB), ("d", 0, 5000, 5000)]
    {
        let capacity_range = Some(CapacityRange { required_bytes, limit_bytes });
        let request = CreateVolumeRequest { capacity_range, ..create(name, 0) };
        let volume = rig.plugin.controller.create_volume(request).await.unwrap().into_inner().volume.unwrap();
        assert_eq!(volume.capacity_bytes, want, "{name}");
        assert_eq!(volume.accessible_topology[0].segments["topology.csi.gpuvol.dev/node"], "node-1");
        assert_eq!(volume.volume_context["gpuvol.dev/tier"], "host");
    }
    let request = CreateVolumeRequest { capacity_range: None, ..create("e", 0) };
    let volume = rig.plugin.controller.create_volume(request).await.unwrap().into_inner().volume.unwrap();
    assert_eq!(volume.capacity_bytes, GIB);
}

#[tokio::test]
async fn the_same_name_is_the_same_volume_or_already_exists() {
    let mut rig = Rig::new().await;
    let first = rig.create("v").await;
    assert_eq!(rig.create("v").await, first);
    let at_least = CapacityRange { required_bytes: GIB, limit_bytes: 0 };
    let compatible = CreateVolumeRequest { capacity_range: Some(at_least), ..create("v", 0) };
    let again = rig.plugin.controller.create_volume(compatible).await.unwrap().into_inner().volume.unwrap();
    assert_eq!((again.volume_id, again.capacity_bytes), (first, 10 * GIB));
    for size in [9 * GIB, 11 * GIB] {
        refused(rig.plugin.controller.create_volume(create("v", size)).await, Code::AlreadyExists);
    }
    let mut other = create("v", 10 * GIB);
    other.parameters.insert("gpuvol.dev/on-loss".into(), "empty".into());
    refused(rig.plugin.controller.create_volume(other).await, Code::AlreadyExists);
    assert_eq!(rig.store.volumes().len(), 1);
}

#[tokio::test]
async fn names_of_128_bytes_and_more_make_distinct_ids() {
    let mut rig = Rig::new().await;
    let long = "n".repeat(127);
    let a = rig.create(&format!("{long}a")).await;
    let b = rig.create(&format!("{long}b")).await;
    let odd = rig.create("../../../etc/passwd\u{0}Ä%").await;
    assert!(a != b && a.len() <= 128 && !odd.contains('/'));
    refused(rig.plugin.controller.create_volume(create("", GIB)).await, Code::InvalidArgument);
}

#[tokio::test]
async fn each_refusal_has_the_code_that_the_provisioner_acts_on() {
    let mut rig = Rig::new().await;
    let controller = &mut rig.plugin.controller;
    rig.store.set_budget(u64::try_from(20 * GIB).unwrap());
    let full = refused(controller.create_volume(create("big", 30 * GIB)).await, Code::ResourceExhausted);
    assert!(full.contains("no room"), "{full}");
    let impossible = CapacityRange { required_bytes: 2, limit_bytes: 1 };
    let request = CreateVolumeRequest { capacity_range: Some(impossible), ..create("v", 0) };
    refused(controller.create_volume(request).await, Code::OutOfRange);
    let source = VolumeContentSource { r#type: Some(Source::Snapshot(SnapshotSource { snapshot_id: "s".into() })) };
    let request = CreateVolumeRequest { volume_content_source: Some(source), ..create("v", GIB) };
    refused(controller.create_volume(request).await, Code::InvalidArgument);
    let request = CreateVolumeRequest { volume_capabilities: vec![], ..create("v", GIB) };
    refused(controller.create_volume(request).await, Code::InvalidArgument);
    let there = Topology { segments: [("topology.csi.gpuvol.dev/node".to_owned(), "node-2".to_owned())].into() };
    let elsewhere = Some(TopologyRequirement { requisite: vec![there], preferred: vec![] });
    let request = CreateVolumeRequest { accessibility_requirements: elsewhere, ..create("v", GIB) };
    refused(controller.create_volume(request).await, Code::ResourceExhausted);
    let mut request = create("v", GIB);
    request.parameters.insert("gpuvol.dev/teir".into(), "gpu".into());
    assert!(refused(controller.create_volume(request).await, Code::InvalidArgument).contains("gpuvol.dev/tier"));
    rig.store.next("create", Script::Refuse(FaultCode::DeviceUnknown));
    refused(controller.create_volume(create("v", GIB)).await, Code::ResourceExhausted);
    rig.store.next("delete", Script::Refuse(FaultCode::InUse));
    refused(controller.delete_volume(delete("gv-1")).await, Code::FailedPrecondition);
    rig.store.hide();
    let gone = refused(controller.create_volume(create("v", GIB)).await, Code::Unavailable);
    assert!(gone.contains("admin.sock"), "{gone}");
}

#[tokio::test]
async fn an_operation_pending_on_the_volume_aborts_even_after_its_caller_left() {
    let mut rig = Rig::new().await;
    rig.store.next("get", Script::Delay(Duration::from_millis(350)));
    let mut other = rig.plugin.controller.clone();
    let first = tokio::spawn(async move { other.create_volume(create("v", GIB)).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let pending = refused(rig.plugin.controller.create_volume(create("v", GIB)).await, Code::Aborted);
    assert!(pending.contains("already an operation pending"), "{pending}");
    rig.plugin.controller.create_volume(create("w", GIB)).await.unwrap();
    first.abort();
    tokio::time::sleep(Duration::from_millis(50)).await;
    refused(rig.plugin.controller.create_volume(create("v", GIB)).await, Code::Aborted);
    tokio::time::sleep(Duration::from_millis(400)).await;
    rig.plugin.controller.create_volume(create("v", GIB)).await.unwrap();
    assert_eq!(rig.store.volumes().len(), 2);
}

#[tokio::test]
async fn a_claim_deleted_while_its_volume_is_made_leaks_nothing() {
    let mut rig = Rig::new().await;
    let id = gpuvol_csi::controller::volume_id("v").unwrap();
    rig.store.next("create", Script::Delay(Duration::from_millis(200)));
    let mut other = rig.plugin.controller.clone();
    let making = tokio::spawn(async move { other.create_volume(create("v", GIB)).await });
    tokio::time::sleep(Duration::from_millis(80)).await;
    refused(rig.plugin.controller.delete_volume(delete(id.as_str())).await, Code::Aborted);
    making.await.unwrap().unwrap();
    rig.plugin.controller.delete_volume(delete(id.as_str())).await.unwrap();
    assert_eq!(rig.store.volumes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_create_whose_answer_was_lost_is_finished_by_its_repetition() {
    let mut rig = Rig::new().await;
    rig.store.next("create", Script::DoneButSilent);
    refused(rig.plugin.controller.create_volume(create("v", 10 * GIB)).await, Code::Unavailable);
    rig.create("v").await;
    assert_eq!(rig.store.volumes().len(), 1);
}

#[tokio::test]
async fn pages_are_stable_and_foreign_tokens_abort() {
    let mut rig = Rig::new().await;
    for n in 0..7 {
        rig.plugin.controller.create_volume(create(&format!("v{n}"), GIB)).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut request = ListVolumesRequest { max_entries: 3, starting_token: String::new() };
    loop {
        let page = rig.plugin.controller.list_volumes(request.clone()).await.unwrap().into_inner();
        assert!(page.entries.len() <= 3);
        seen.extend(page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id));
        // A volume that goes meanwhile shifts no other one.
        rig.plugin.controller.delete_volume(delete(&seen[0])).await.unwrap();
        if page.next_token.is_empty() {
            break;
        }
        request.starting_token = page.next_token;
    }
    assert_eq!(seen.len(), 7);
    assert!(seen.is_sorted());
    let request = ListVolumesRequest { max_entries: 0, starting_token: "invalid-token".into() };
    refused(rig.plugin.controller.list_volumes(request).await, Code::Aborted);
    let request = ListVolumesRequest { max_entries: -1, starting_token: String::new() };
    refused(rig.plugin.controller.list_volumes(request).await, Code::InvalidArgument);
}

#[tokio::test]
async fn capacity_names_the_largest_single_volume_and_promises_nothing_elsewhere() {
    let mut rig = Rig::new().await;
    rig.store.set_budget(1000);
    let ask = |segments: &[(&str, &str)]| GetCapacityRequest {
        parameters: [("gpuvol.dev/tier".to_owned(), "host".to_owned())].into(),
        accessible_topology: Some(Topology {
            segments: segments.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        }),
        ..GetCapacityRequest::default()
    };
    let key = "topology.csi.gpuvol.dev/node";
    let here = rig.plugin.controller.get_capacity(ask(&[(key, "node-1")])).await.unwrap().into_inner();
    assert_eq!((here.available_capacity, here.maximum_volume_size), (1000, Some(500)));
    let there = rig.plugin.controller.get_capacity(ask(&[(key, "node-2")])).await.unwrap().into_inner();
    assert_eq!((there.available_capacity, there.maximum_volume_size), (0, Some(0)));
    rig.store.next("capacity", Script::Refuse(FaultCode::DeviceUnknown));
    let unknown = rig.plugin.controller.get_capacity(ask(&[])).await.unwrap().into_inner();
    assert_eq!(unknown.available_capacity, 0);
}

#[tokio::test]
async fn validate_confirms_what_is_offered_and_explains_the_rest() {
    let mut rig = Rig::new().await;
    let volume_id = rig.create("v").await;
    let ask = |volume_id: &str, mode| ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id.to_owned(),
        volume_capabilities: vec![capability(mode)],
        ..ValidateVolumeCapabilitiesRequest::default()
    };
    let controller = &mut rig.plugin.controller;
    let mut validate =
        async |request| controller.validate_volume_capabilities(request).await.map(tonic::Response::into_inner);
    assert!(validate(ask(&volume_id, Mode::SingleNodeMultiWriter)).await.unwrap().confirmed.is_some());
    let no = validate(ask(&volume_id, Mode::MultiNodeMultiWriter)).await.unwrap();
    assert!(no.confirmed.is_none() && no.message.contains("SINGLE_NODE_MULTI_WRITER"));
    refused(validate(ask("gv-unknown", Mode::SingleNodeWriter)).await, Code::NotFound);
    refused(validate(ask("../x", Mode::SingleNodeWriter)).await, Code::NotFound);
    refused(validate(ask("", Mode::SingleNodeWriter)).await, Code::InvalidArgument);
}

#[tokio::test]
async fn a_probe_is_not_ready_while_starting_and_fails_when_the_store_is_gone() {
    let mut rig = Rig::new().await;
    rig.store.hide();
    let starting = rig.plugin.identity.probe(ProbeRequest {}).await.unwrap().into_inner();
    assert_eq!(starting.ready, Some(false));
    rig.store.listen();
    let ready = rig.plugin.identity.probe(ProbeRequest {}).await.unwrap().into_inner();
    assert_eq!(ready.ready, Some(true));
    rig.store.hide();
    refused(rig.plugin.identity.probe(ProbeRequest {}).await, Code::FailedPrecondition);
}
