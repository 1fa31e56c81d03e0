//! The demo's result as a table for people.

use std::fmt::Write as _;

use super::demo::{Report, VOLUME};

/// Column heads; numbers stand right.
const HEAD: [&str; 8] = ["hand-over", "by", "rows", "MiB", "write ms", "read ms", "together ms", "ratio"];

pub fn print(report: &Report) -> String {
    let base = report.ways.iter().find(|way| way.via == VOLUME);
    let mut rows: Vec<[String; 8]> = Vec::new();
    let hops = base.map_or(0, |way| way.hops.len());
    for at in 0..hops {
        let own = base.and_then(|way| way.hops.get(at)).map(super::demo::Hop::ms);
        for (nth, way) in report.ways.iter().enumerate() {
            let Some(hop) = way.hops.get(at) else { continue };
            let name = if nth == 0 { format!("{} -> {}", hop.from, hop.to) } else { String::new() };
            rows.push([
                name,
                way.via.clone(),
                hop.rows.to_string(),
                mib(hop.bytes),
                ms(hop.write_ms),
                ms(hop.read_ms),
                ms(hop.ms()),
                ratio(hop.ms(), own),
            ]);
        }
    }
    for (nth, way) in report.ways.iter().enumerate() {
        let name = if nth == 0 { "all".to_owned() } else { String::new() };
        let bytes = way.hops.iter().map(|hop| hop.bytes).sum();
        let (write, read) = way.hops.iter().fold((0.0, 0.0), |(w, r), hop| (w + hop.write_ms, r + hop.read_ms));
        let own = base.map(super::demo::Outcome::ms);
        let all =
            [name, way.via.clone(), String::new(), mib(bytes), ms(write), ms(read), ms(way.ms()), ratio(way.ms(), own)];
        rows.push(all);
    }
    let mut text = format!(
        "Three stages hand a table on, {}.\nThe volume is in {}; files are on {}.\n\n",
        report.isolation, report.device, report.disk
    );
    lay_out(&mut text, &rows);
    ways(&mut text, report);
    scores(&mut text, report);
    text
}

fn lay_out(text: &mut String, rows: &[[String; 8]]) {
    let head = HEAD.map(str::to_owned);
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> = (0..HEAD.len()).map(|c| all().map(|row| row[c].len()).max().unwrap_or(0)).collect();
    for row in all() {
        if !row[0].is_empty() && row[0] != HEAD[0] {
            text.push('\n');
        }
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            // Writing to a String cannot fail.
            let _ = if column < 2 { write!(text, "{cell:<width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
}

/// How the client did it, for it never does anything slow silently.
fn ways(text: &mut String, report: &Report) {
    let Some(own) = report.ways.iter().find(|way| way.via == VOLUME) else { return };
    text.push('\n');
    for hop in &own.hops {
        let _ =
            writeln!(text, "{} -> {} by gpu-volume: put {}, open {}", hop.from, hop.to, hop.write_way, hop.read_way);
    }
}

fn scores(text: &mut String, report: &Report) {
    let score = |way: &super::demo::Outcome| format!("{:.4} by {}", way.score, way.via);
    let line = match report.ways.first() {
        Some(first) if report.scores_agree => format!("{:.4}, the same by every way", first.score),
        _ => report.ways.iter().map(score).collect::<Vec<_>>().join(", "),
    };
    let _ = writeln!(text, "The classifier's score (ROC AUC): {line}");
}

fn mib(bytes: u64) -> String {
    // To a tenth; a table's bytes are far from where f64 loses any.
    #[allow(clippy::cast_precision_loss)]
    let mib = bytes as f64 / f64::from(1 << 20);
    format!("{mib:.1}")
}

fn ms(ms: f64) -> String {
    format!("{ms:.1}")
}

fn ratio(ms: f64, own: Option<f64>) -> String {
    own.filter(|own| *own > 0.0).map_or_else(String::new, |own| format!("{:.1}x", ms / own))
}

#[cfg(test)]
mod tests {
    use super::super::demo::{Hop, Outcome};
    use super::*;

    fn way(via: &str, ms: f64, score: f64) -> Outcome {
        let hop = Hop {
            from: "read".into(),
            to: "clean".into(),
            rows: 5,
            bytes: 3 << 20,
            write_ms: ms,
            read_ms: ms,
            write_way: "copied".into(),
            read_way: "mapped".into(),
        };
        Outcome { via: via.into(), hops: vec![hop], score, pipeline_seconds: 1.0 }
    }

    #[test]
    fn ways_are_compared_with_the_volume() {
        let mut report = Report {
            device: "host memory".into(),
            disk: "ext4 at /tmp".into(),
            isolation: "x".into(),
            ways: vec![way(VOLUME, 2.0, 0.75), way("parquet", 13.0, 0.75)],
            scores_agree: true,
        };
        let text = print(&report);
        assert!(text.contains("6.5x") && text.contains("1.0x") && text.contains("3.0"), "{text}");
        assert!(text.contains("0.7500, the same") && text.contains("put copied, open mapped"), "{text}");
        assert!(text.lines().all(|line| !line.ends_with(' ')));
        report.scores_agree = false;
        assert!(print(&report).contains("0.7500 by parquet"));
    }
}
