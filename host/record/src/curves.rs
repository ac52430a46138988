//! `curves.png`: success, rewards, losses and gradient norms of a run in four panels, drawn from
//! `metrics.jsonl`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Once;

use plotters::prelude::*;
use plotters::style::register_font;
use serde_json::Value;

use crate::error::Error;
use crate::jsonl::read_jsonl;

const SIZE: (u32, u32) = (1400, 900);
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xd6, 0x5f, 0x0e),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xb0, 0x2a, 0x37),
    RGBColor(0x6f, 0x4f, 0xa8),
    RGBColor(0x55, 0x55, 0x55),
];

type DrawingError = Box<dyn std::error::Error + Send + Sync>;

/// Points (step, value) of one line.
type Series = Vec<(f64, f64)>;

#[derive(Default)]
struct Panel {
    title: &'static str,
    series: BTreeMap<String, Series>,
}

impl Panel {
    fn new(title: &'static str) -> Panel {
        Panel { title, series: BTreeMap::new() }
    }

    fn add(&mut self, name: &str, step: f64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_f64) {
            self.series.entry(name.to_owned()).or_default().push((step, value));
        }
    }

    /// Adds `field` of every member of the object `members`.
    fn add_each(&mut self, members: Option<&Value>, field: &str, step: f64) {
        for (name, member) in members.and_then(Value::as_object).into_iter().flatten() {
            self.add(name, step, member.get(field));
        }
    }
}

/// Draws the curves of a metrics file. Draws nothing if the file is empty.
pub fn draw_curves(metrics: &Path, picture: &Path) -> Result<(), Error> {
    let lines: Vec<Value> = read_jsonl(metrics)?;
    if lines.is_empty() {
        return Ok(());
    }
    let panels = panels(&lines);
    let partial = picture.with_extension("partial.png");
    draw(&panels, &partial).map_err(|source| Error::Drawing { path: picture.to_path_buf(), source })?;
    std::fs::rename(&partial, picture).map_err(Error::io("rename to", picture))
}

fn panels(lines: &[Value]) -> [Panel; 4] {
    let mut success = Panel::new("success");
    let mut reward = Panel::new("reward of each agent");
    let mut loss = Panel::new("loss of each policy");
    let mut gradient = Panel::new("gradient norm of each policy");
    for line in lines {
        let Some(step) = line.get("step").and_then(Value::as_f64) else { continue };
        if line.get("kind").and_then(Value::as_str) == Some("evaluation") {
            let name = line.get("name").and_then(Value::as_str).unwrap_or("evaluation");
            success.add(name, step, line.get("success"));
        } else {
            success.add("rollouts", step, line.get("rollout_success"));
            reward.add_each(line.get("agents"), "reward", step);
            loss.add_each(line.get("policies"), "loss", step);
            gradient.add_each(line.get("policies"), "grad_norm", step);
        }
    }
    [success, reward, loss, gradient]
}

fn draw(panels: &[Panel; 4], path: &Path) -> Result<(), DrawingError> {
    static FONT: Once = Once::new();
    FONT.call_once(|| {
        // Fails only if the bytes are not a font; drawing text then returns an error.
        let _ = register_font("sans-serif", FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    });
    let area = BitMapBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    for (panel, quarter) in panels.iter().zip(area.split_evenly((2, 2))) {
        draw_panel(panel, &quarter)?;
    }
    Ok(area.present()?)
}

fn draw_panel(
    panel: &Panel,
    area: &DrawingArea<BitMapBackend<'_>, plotters::coord::Shift>,
) -> Result<(), DrawingError> {
    let points = || panel.series.values().flatten();
    let (x, y) = (range(points().map(|p| p.0)), range(points().map(|p| p.1)));
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, ("sans-serif", 24))
        .margin(14)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc("step")
        .x_label_formatter(&|step| format!("{step:.0}"))
        .label_style(("sans-serif", 16))
        .light_line_style(WHITE)
        .draw()?;
    for ((name, series), colour) in panel.series.iter().zip(COLOURS.iter().cycle()) {
        chart
            .draw_series(LineSeries::new(series.iter().copied(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
    }
    if !panel.series.is_empty() {
        chart
            .configure_series_labels()
            .label_font(("sans-serif", 16))
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(0xcc, 0xcc, 0xcc))
            .draw()?;
    }
    Ok(())
}

/// A range of all finite values with a margin of 5 %; never empty.
fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return 0.0..1.0;
    }
    let margin = if high > low { (high - low) * 0.05 } else { 0.5 };
    low - margin..high + margin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_sorted_into_panels() {
        let lines = [
            serde_json::json!({"kind": "step", "step": 1, "rollout_success": 0.5, "agents": {"tool": {"reward": 1.0}},
                "policies": {"coder": {"loss": 0.1, "grad_norm": 2.0}}}),
            serde_json::json!({"kind": "evaluation", "step": 1, "name": "test", "success": 0.25}),
        ];
        let [success, reward, loss, gradient] = panels(&lines);
        assert_eq!(success.series["rollouts"], [(1.0, 0.5)]);
        assert_eq!(success.series["test"], [(1.0, 0.25)]);
        assert_eq!(reward.series["tool"], [(1.0, 1.0)]);
        assert_eq!(loss.series["coder"], [(1.0, 0.1)]);
        assert_eq!(gradient.series["coder"], [(1.0, 2.0)]);
    }

    #[test]
    fn a_single_point_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let (metrics, picture) = (folder.path().join("m.jsonl"), folder.path().join("curves.png"));
        std::fs::write(&metrics, "{\"kind\":\"step\",\"step\":1,\"success\":0.5}\n").unwrap();
        draw_curves(&metrics, &picture).unwrap();
        let bytes = std::fs::read(&picture).unwrap();
        assert!(bytes.starts_with(b"\x89PNG"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
    }
}
