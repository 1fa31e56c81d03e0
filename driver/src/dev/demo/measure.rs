//! What the stages print, one JSON object a line, put together.

use serde::{Deserialize, Serialize};

use crate::dev::{Error, Result};

/// A line of a stage. Lines of other shapes are the stage's own business.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Line {
    Handover(Handover),
    Score { roc_auc: f64 },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Handover {
    pub stage: String,
    /// `write` or `read`.
    pub op: String,
    pub bytes: u64,
    pub rows: u64,
    pub seconds: f64,
    /// How the client did it: `adopted`, `mapped`, `copied`, …, or `file`.
    pub way: String,
}

/// One way from the first stage to the last.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub via: String,
    pub hops: Vec<Hop>,
    /// Area under the classifier's ROC curve.
    pub score: f64,
    /// All three stages with their start, work and end.
    pub pipeline_seconds: f64,
}

/// One hand-over.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hop {
    pub from: String,
    pub to: String,
    pub rows: u64,
    /// Of the object or file.
    pub bytes: u64,
    pub write_ms: f64,
    pub read_ms: f64,
    pub write_way: String,
    pub read_way: String,
}

impl Hop {
    pub fn ms(&self) -> f64 {
        self.write_ms + self.read_ms
    }
}

impl Outcome {
    pub fn ms(&self) -> f64 {
        self.hops.iter().map(Hop::ms).sum()
    }
}

/// The lines of one stage's output that mean something.
pub fn lines(output: &str) -> Vec<Line> {
    output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Each write with the read that follows it, and the score.
pub fn outcome(via: &str, lines: &[Line], pipeline_seconds: f64) -> Result<Outcome> {
    let broken =
        |stage: &str, what: &str| Error::Measurement { stage: stage.into(), via: via.into(), what: what.into() };
    let handovers: Vec<&Handover> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Handover(handover) => Some(handover),
            Line::Score { .. } => None,
        })
        .collect();
    let mut hops = Vec::new();
    for pair in handovers.chunks(2) {
        let [write, read] = pair else { return Err(broken("train", "a write that nobody reads")) };
        if write.op != "write" || read.op != "read" {
            return Err(broken(&write.stage, "writes and reads do not follow each other"));
        }
        if write.rows != read.rows {
            return Err(broken(&read.stage, &format!("{} rows written and {} read", write.rows, read.rows)));
        }
        hops.push(Hop {
            from: write.stage.clone(),
            to: read.stage.clone(),
            rows: write.rows,
            bytes: write.bytes,
            write_ms: write.seconds * 1000.0,
            read_ms: read.seconds * 1000.0,
            write_way: write.way.clone(),
            read_way: read.way.clone(),
        });
    }
    let score = lines.iter().find_map(|line| match line {
        Line::Score { roc_auc } => Some(*roc_auc),
        Line::Handover(_) => None,
    });
    if hops.is_empty() {
        return Err(broken("read", "no hand-over"));
    }
    let score = score.ok_or_else(|| broken("train", "no roc_auc"))?;
    Ok(Outcome { via: via.into(), hops, score, pipeline_seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"
a warning of some library
{"stage": "read", "op": "write", "via": "gpuvol", "bytes": 10, "rows": 5, "seconds": 0.001, "way": "copied"}
{"stage": "clean", "op": "read", "via": "gpuvol", "bytes": 10, "rows": 5, "seconds": 0.002, "way": "mapped"}
{"stage": "train", "rows": 5, "roc_auc": 0.75}
"#;

    #[test]
    fn a_write_and_its_read_are_one_hand_over() {
        let outcome = outcome("gpuvol", &lines(PRINTED), 1.0).unwrap();
        assert_eq!((outcome.hops.len(), outcome.score), (1, 0.75));
        assert!((outcome.ms() - 3.0).abs() < 1e-9);
        assert_eq!(outcome.hops[0].read_way, "mapped");
    }

    #[test]
    fn what_is_missing_is_named() {
        let without = |word: &str| {
            let kept: Vec<&str> = PRINTED.lines().filter(|line| !line.contains(word)).collect();
            outcome("gpuvol", &lines(&kept.join("\n")), 1.0).unwrap_err().to_string()
        };
        assert!(without("roc_auc").contains("roc_auc"));
        assert!(without("\"clean\"").contains("nobody reads"));
        let fewer = PRINTED.replacen("\"rows\": 5", "\"rows\": 6", 1);
        assert!(outcome("gpuvol", &lines(&fewer), 1.0).unwrap_err().to_string().contains("6 rows"));
    }
}
