//! What is printed, and what is demanded of it.

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub what: String,
    pub unit: &'static str,
    pub subject: f64,
    pub reference: f64,
    /// How good the subject is as a part of the reference: 1 is as good, less is worse.
    pub ratio: f64,
    pub demand: Option<Demand>,
    pub met: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// The ratio is at least this.
    Ratio(f64),
    /// The subject's figure is at least this.
    AtLeast(f64),
    /// The subject's figure is at most this.
    AtMost(f64),
}

impl Row {
    /// A figure that is better when it is greater.
    pub fn rate(what: &str, unit: &'static str, subject: f64, reference: f64, demand: Option<Demand>) -> Self {
        Self::new(what, unit, (subject, reference), subject / reference, demand)
    }

    /// A figure that is better when it is less.
    pub fn time(what: &str, unit: &'static str, subject: f64, reference: f64, demand: Option<Demand>) -> Self {
        Self::new(what, unit, (subject, reference), reference / subject, demand)
    }

    fn new(what: &str, unit: &'static str, figures: (f64, f64), ratio: f64, demand: Option<Demand>) -> Self {
        let (subject, reference) = figures;
        let met = match demand {
            None => true,
            Some(Demand::Ratio(least)) => ratio >= least,
            Some(Demand::AtLeast(least)) => subject >= least,
            Some(Demand::AtMost(most)) => subject <= most,
        };
        Self { what: what.to_owned(), unit, subject, reference, ratio, demand, met }
    }
}

pub fn print(rows: &[Row]) {
    println!("| what | subject | reference | ratio | demanded |");
    println!("|---|---|---|---|---|");
    for row in rows {
        let demand = match row.demand {
            None => String::new(),
            Some(Demand::Ratio(least)) => format!("ratio {least}"),
            Some(Demand::AtLeast(least)) => format!("at least {least}"),
            Some(Demand::AtMost(most)) => format!("at most {most}"),
        };
        let missed = if row.met { "" } else { " MISSED" };
        let Row { what, unit, subject, reference, ratio, .. } = row;
        println!(
            "| {what} | {} {unit} | {} {unit} | {ratio:.2} | {demand}{missed} |",
            figure(*subject),
            figure(*reference)
        );
    }
}

fn figure(number: f64) -> String {
    if number >= 100.0 { format!("{number:.0}") } else { format!("{number:.3}") }
}
