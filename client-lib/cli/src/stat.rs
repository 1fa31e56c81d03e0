//! `gpuvol stat`.

use std::path::PathBuf;

use clap::Args;
use gpuvol_protocol::types::Bytes;
use serde::Serialize;

use crate::escape::{shown, shown_path};
use crate::failure::{Result, each};
use crate::item::Item;
use crate::location::Location;
use crate::output::{HEADING, print, print_json};
use crate::text::utc;

/// Shows all that is known of an object
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol stat /data/features
  gpuvol stat --json /data/features | jq .entries[0].version")]
pub struct Stat {
    /// One JSON document: {"entries": [...]}
    #[arg(long)]
    json: bool,
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Document {
    entries: Vec<Item>,
}

impl Stat {
    pub fn run(self) -> Result<()> {
        let mut entries = Vec::new();
        let outcome = each(&self.paths, |path| {
            let item = Item::at(&Location::of(path)?)?;
            if self.json {
                entries.push(item);
                return Ok(());
            }
            print(&text(&item))
        });
        if self.json {
            print_json(&Document { entries })?;
        }
        outcome
    }
}

fn text(item: &Item) -> String {
    let mut text = format!("{HEADING}{}{HEADING:#}\n", shown_path(&item.typed));
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("  {name:<10}{}\n", shown(value.as_bytes())));
        }
    };
    line("type", Some(item.what.name().to_owned()));
    line("volume", item.volume.clone());
    line("kind", item.kind.map(str::to_owned));
    line("size", item.size.map(|size| Bytes(size).to_string()));
    line("version", item.version.map(|version| version.to_string()));
    line("tier", item.tier.map(str::to_owned));
    line("device", item.device.clone());
    line("time", item.modified_ms.map(utc));
    line("producer", item.producer.clone());
    for (name, value) in item.attributes.iter().flatten() {
        line("attribute", Some(format!("{name}={value}")));
    }
    text
}
