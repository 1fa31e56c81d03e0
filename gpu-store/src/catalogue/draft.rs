//! Drafts: files that are being written through mounts.
//!
//! A draft stands at the file's name from its first open for writing on, and keeps what stood there, its base. Mounts
//! that do not write it see the base until the draft is *shown*: at the first flush after a write, or when its last writer
//! closes it and it is frozen. A draft has no memory before the first write; then its memfd's size is the file's size, and
//! the memfd's times are the file's: nothing about its content is lost with the store or the mounter.

use std::time::{Duration, Instant};

use gpuvol_protocol::message::{Kind, Tier};

use super::object::{Content, Object};
use super::quota::Share;
use super::record::{DraftGrown, DraftMade};
use super::volume::{Freeing, Volume};

#[derive(Debug, Clone, Default)]
pub struct Draft {
    /// The memfd's id; 0 while there is none.
    pub memory: u64,
    /// Bytes of quota.
    pub charge: u64,
    /// The version that it may replace; 0 for a new file.
    pub base: u64,
    /// It is no copy of its base.
    pub truncated: bool,
    pub shown: bool,
    /// Publishes that see it before it is shown.
    pub owners: Vec<String>,
    /// Handles that may write.
    pub writers: u64,
    /// Its memory is being made, or it is being frozen: whoever wants either waits. In no record.
    pub busy: bool,
    /// Until when an open may come that was told to look the name up again: it finds this draft, and the kernel looks again
    /// only once. In no record.
    expected: Option<Instant>,
}

/// How long an open that was told to look again is waited for. It comes at once, unless the machine is very busy.
const EXPECTED: Duration = Duration::from_millis(250);

impl Draft {
    /// Somebody was told to look again, and will find this draft.
    pub fn expect(&mut self) {
        self.expected = Some(Instant::now() + EXPECTED);
    }

    pub fn is_expected(&self) -> bool {
        self.expected.is_some_and(|until| Instant::now() < until)
    }

    pub fn is_seen_by(&self, publish: &str) -> bool {
        self.shown || self.owners.iter().any(|owner| owner == publish)
    }
}

impl Volume {
    /// What a publish's mount sees where a name leads to this object.
    pub fn seen(&self, id: u64, publish: &str) -> Option<&Object> {
        let object = self.objects.get(&id)?;
        match &object.content {
            Content::Draft(draft) if !draft.is_seen_by(publish) => self.objects.get(&draft.base),
            _ => Some(object),
        }
    }

    /// What a client sees there: never a draft.
    pub fn sealed(&self, id: u64) -> Option<&Object> {
        let object = self.objects.get(&id)?;
        match &object.content {
            Content::Draft(draft) => self.objects.get(&draft.base),
            _ => Some(object),
        }
    }

    pub fn draft(&self, node: u64) -> Option<&Draft> {
        self.objects.get(&node).and_then(Object::as_draft)
    }

    /// Every draft, with or without a name.
    pub fn drafts(&self) -> impl Iterator<Item = (&Object, &Draft)> {
        self.objects.values().filter_map(|object| Some((object, object.as_draft()?)))
    }

    pub fn draft_mut(&mut self, node: u64) -> Option<&mut Draft> {
        match &mut self.objects.get_mut(&node)?.content {
            Content::Draft(draft) => Some(draft),
            Content::Segments { .. } | Content::Slot(_) | Content::Link(_) => None,
        }
    }

    pub fn make_draft(&mut self, made: DraftMade) -> Result<(), String> {
        if !made.hidden {
            let before = self.tree.put_object(made.parent, &made.name, made.node, made.cookie)?;
            if before.unwrap_or(0) != made.base {
                return Err(format!("draft {} replaces {before:?} instead of {}", made.node, made.base));
            }
            if made.base == 0 && made.cookie == 0 {
                self.tree.touch(made.parent, made.time_ns);
            }
        }
        if made.base != 0 {
            let base = self.objects.get_mut(&made.base).ok_or_else(|| format!("no version {}", made.base))?;
            base.holds += 1;
            if !made.hidden {
                base.draft = made.node;
            }
        }
        let draft = Draft { base: made.base, shown: made.shown, owners: made.owners, ..Draft::default() };
        let object = Object {
            version: made.node,
            kind: Kind::Bytes,
            content: Content::Draft(draft),
            attributes: Vec::new(),
            time_ms: u64::try_from(made.time_ns / 1_000_000).unwrap_or(0),
            producer: made.producer,
            holds: 0,
            visible: !made.hidden,
            written: true,
            draft: 0,
            meta: made.meta.unwrap_or_default(),
        };
        self.objects.insert(made.node, object);
        Ok(())
    }

    pub fn grow_draft(&mut self, grown: &DraftGrown) -> Result<(), String> {
        let draft = self.draft_mut(grown.node).ok_or_else(|| format!("no draft {}", grown.node))?;
        let before = std::mem::replace(&mut draft.charge, grown.charge);
        draft.memory = grown.memory;
        draft.truncated |= grown.truncated;
        self.quota.give_back(Share::Reserved, Tier::Host, before);
        self.quota.take(Share::Reserved, Tier::Host, grown.charge);
        Ok(())
    }

    pub fn join_draft(&mut self, node: u64, publish: String) -> Result<(), String> {
        let draft = self.draft_mut(node).ok_or_else(|| format!("no draft {node}"))?;
        if !draft.owners.contains(&publish) {
            draft.owners.push(publish);
        }
        Ok(())
    }

    /// The base goes: nobody sees it any more at the draft's name.
    pub fn show_draft(&mut self, node: u64, freeing: &mut Freeing) -> Result<(), String> {
        let draft = self.draft_mut(node).ok_or_else(|| format!("no draft {node}"))?;
        draft.shown = true;
        let base = std::mem::take(&mut draft.base);
        self.let_go_of_base(base, node, freeing);
        Ok(())
    }

    /// The draft gives way to its base, or its name goes where it has none.
    pub fn drop_draft(&mut self, node: u64, freeing: &mut Freeing) -> Result<(), String> {
        let draft = self.draft_mut(node).ok_or_else(|| format!("no draft {node}"))?;
        // Whoever has the draft open for reading still reads the base through it.
        let base = draft.base;
        let place = self.tree.place(node).map(|(parent, name)| (parent, name.to_vec()));
        if let Some((parent, name)) = place {
            if base == 0 {
                self.tree.remove(parent, &name)?;
            } else {
                self.tree.put_object(parent, &name, base, 0)?;
            }
        }
        if let Some(object) = self.objects.get_mut(&base) {
            object.draft = 0;
        }
        self.hide(node, freeing);
        Ok(())
    }

    /// A draft that is gone, was shown, or was frozen needs its base no more.
    pub fn let_go_of_base(&mut self, base: u64, node: u64, freeing: &mut Freeing) {
        self.hide_base(base, node, freeing);
        self.release(base, freeing);
    }

    /// Nobody finds a base any more at the name that its draft had, unless it has that name itself again.
    pub fn hide_base(&mut self, base: u64, node: u64, freeing: &mut Freeing) {
        if let Some(object) = self.objects.get_mut(&base).filter(|o| o.draft == node) {
            object.draft = 0;
            self.hide(base, freeing);
        }
    }

    /// The record that makes a draft again, and the one that gives it what it has grown to.
    pub fn draft_records(&self, id: &str, node: u64, cookie: u64) -> Option<(DraftMade, DraftGrown)> {
        let object = self.objects.get(&node)?;
        let draft = object.as_draft()?;
        let (parent, name) = self.tree.place(node).unwrap_or((0, b""));
        let made = DraftMade {
            volume: id.to_owned(),
            node,
            parent,
            name: name.to_vec(),
            base: draft.base,
            meta: Some(object.meta.clone()),
            owners: draft.owners.clone(),
            producer: object.producer.clone(),
            time_ns: i64::try_from(object.time_ms).unwrap_or(0).saturating_mul(1_000_000),
            hidden: !object.visible,
            shown: draft.shown,
            cookie,
            origin: None,
        };
        let (memory, charge, truncated) = (draft.memory, draft.charge, draft.truncated);
        Some((made, DraftGrown { volume: id.to_owned(), node, memory, charge, truncated }))
    }
}
