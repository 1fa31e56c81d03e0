//! `gpuvol ls`.

use std::path::PathBuf;

use anstyle::Style;
use clap::Args;
use serde::Serialize;

use crate::escape::{shown, shown_path};
use crate::failure::{Result, each};
use crate::item::{Item, walk_directory};
use crate::location::Location;
use crate::output::{DIRECTORY, FAINT, GPU, PLAIN, print, print_json};
use crate::table::{Align, Table, plain};
use crate::text::{human_size, utc};

/// Lists objects and directories
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol ls /data        names, one a line; directories end with /
  gpuvol ls -lR /data    everything below, with all columns
  gpuvol ls --json /data | jq '.entries[] | select(.tier == \"gpu\") | .size'

A directory is listed in byte order of names.")]
pub struct Ls {
    /// One line for each with kind, size, tier, version, time (UTC), producer and name
    #[arg(short, long)]
    long: bool,
    /// Directories below too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// With -l: sizes in bytes instead of KiB, MiB, ...
    #[arg(short, long)]
    bytes: bool,
    /// One JSON document: {"entries": [...]}
    #[arg(long)]
    json: bool,
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Document {
    entries: Vec<Item>,
}

impl Ls {
    pub fn run(self) -> Result<()> {
        let mut entries = Vec::new();
        let several = self.paths.len() > 1 || self.recursive;
        let mut first = true;
        let outcome = each(&self.paths, |path| {
            let location = Location::of(path)?;
            let item = Item::at(&location)?;
            if !item.is_directory() && !location.typed.is_dir() {
                // An object of that name: listed by the path that was asked for.
                if self.json {
                    entries.push(Item { attributes: None, ..item });
                    return Ok(());
                }
                return print(&self.lines(&[item], true));
            }
            self.directory(&location, several, &mut first, &mut entries)
        });
        if self.json {
            print_json(&Document { entries })?;
        }
        outcome
    }

    fn directory(&self, location: &Location, headed: bool, first: &mut bool, all: &mut Vec<Item>) -> Result<()> {
        if headed && !self.json {
            let gap = if std::mem::take(first) { "" } else { "\n" };
            print(&format!("{gap}{}:\n", shown_path(&location.typed)))?;
        }
        let mut below = Vec::new();
        walk_directory(location, |page| {
            if self.recursive {
                below.extend(page.iter().filter(|item| item.is_directory()).map(|item| item.raw_name.clone()));
            }
            if self.json {
                all.extend(page);
                return Ok(());
            }
            print(&self.lines(&page, false))
        })?;
        each(below, |name| self.directory(&location.child(&name)?, headed, first, all))
    }

    /// `by_path`: named as they were typed, not by their last component.
    fn lines(&self, items: &[Item], by_path: bool) -> String {
        let name = |item: &Item| {
            let name = if by_path { shown_path(&item.typed) } else { shown(&item.raw_name) };
            if item.is_directory() { (format!("{name}/"), DIRECTORY) } else { (name, style(item)) }
        };
        if !self.long {
            return items.iter().map(name).map(|(name, style)| format!("{style}{name}{style:#}\n")).collect();
        }
        let columns = [
            ("KIND", Align::Left),
            ("SIZE", Align::Right),
            ("TIER", Align::Left),
            ("VERSION", Align::Right),
            ("TIME", Align::Left),
            ("PRODUCER", Align::Left),
            ("NAME", Align::Left),
        ];
        let mut table = Table::new(&columns);
        let dash = || "-".to_owned();
        for item in items {
            let size = item.size.map(|size| if self.bytes { size.to_string() } else { human_size(size) });
            table.row(vec![
                plain(item.kind.unwrap_or(item.what.name())),
                plain(size.unwrap_or_else(dash)),
                (item.tier.map_or_else(dash, str::to_owned), style(item)),
                plain(item.version.map_or_else(dash, |v| v.to_string())),
                (item.modified_ms.map_or_else(dash, utc), FAINT),
                plain(item.producer.as_ref().map_or_else(dash, |p| shown(p.as_bytes()))),
                name(item),
            ]);
        }
        table.render(false)
    }
}

fn style(item: &Item) -> Style {
    if item.on_gpu() { GPU } else { PLAIN }
}
