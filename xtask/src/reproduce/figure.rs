//! The picture of an experiment: success over steps, a line for each arm.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Once;

use anyhow::{Context, Result};
use plotters::prelude::*;
use plotters::style::register_font;
use serde_json::Value;

const SIZE: (u32, u32) = (860, 460);

/// Number of steps that a point of a line is the mean of: a step has few episodes.
const WINDOW: u64 = 4;

/// Success of the episodes of each step, of all seeds of an arm.
#[derive(Debug, Default, PartialEq)]
pub struct Curve(BTreeMap<u64, Vec<f64>>);

impl Curve {
    /// Adds the steps of a run, from the lines of its metrics.
    pub fn add(&mut self, lines: &[Value]) {
        for line in lines.iter().filter(|line| line["kind"] == "step") {
            if let (Some(step), Some(success)) = (line["step"].as_u64(), line["rollout_success"].as_f64()) {
                self.0.entry(step).or_default().push(success);
            }
        }
    }

    /// Returns the points: for each step, the mean in percent of the last [`WINDOW`] steps of all seeds.
    fn points(&self) -> Vec<(f64, f64)> {
        let mean = |last: u64| {
            let own = self.0.range((last + 1).saturating_sub(WINDOW)..=last).flat_map(|(_, values)| values);
            let (sum, count) = own.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
            100.0 * sum / count
        };
        self.0.keys().map(|step| (*step as f64, mean(*step))).collect()
    }
}

/// Draws a line for each arm that has steps.
///
/// # Errors
/// If the file can't be written.
pub fn draw(path: &Path, arms: &[(&str, Curve)]) -> Result<()> {
    draw_svg(path, arms).with_context(|| format!("cannot draw {}", path.display()))
}

fn draw_svg(path: &Path, arms: &[(&str, Curve)]) -> Result<()> {
    static FONT: Once = Once::new();
    FONT.call_once(|| {
        // Fails only if the bytes are not a font; drawing text then returns an error.
        let _ = register_font("sans-serif", FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    });
    let lines: Vec<_> = arms.iter().map(|(name, curve)| (*name, curve.points())).collect();
    let last = lines.iter().flat_map(|(_, points)| points).map(|point| point.0).fold(1.0, f64::max);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(1.0..last, 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|step| format!("{step:.0}"))
        .y_label_formatter(&|percent| format!("{percent:.0}"))
        .x_desc("step")
        .y_desc("success of episodes, %")
        .draw()?;
    for (index, (name, points)) in lines.into_iter().filter(|(_, points)| !points.is_empty()).enumerate() {
        let style = Palette99::pick(index).stroke_width(2);
        let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style);
        chart.draw_series(LineSeries::new(points, style))?.label(name).legend(key);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    Ok(area.present()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn curve(successes: &[f64]) -> Curve {
        let step = |(index, success): (usize, &f64)| json!({"kind": "step", "step": index + 1, "rollout_success": success});
        let mut curve = Curve::default();
        curve.add(&successes.iter().enumerate().map(step).collect::<Vec<_>>());
        curve
    }

    #[test]
    fn points_are_means_of_the_last_steps_of_all_seeds() {
        let mut both = curve(&[0.0, 0.5, 0.5, 1.0, 1.0]);
        both.add(&[
            json!({"kind": "step", "step": 1, "rollout_success": 1.0}),
            json!({"kind": "evaluation", "step": 1}),
        ]);
        let expected = [(1.0, 50.0), (2.0, 50.0), (3.0, 50.0), (4.0, 60.0), (5.0, 75.0)];
        assert_eq!(both.points(), expected);
    }

    #[test]
    fn a_picture_has_a_line_and_a_name_for_each_arm_with_steps() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figure.svg");
        draw(&path, &[("sync", curve(&[0.2, 0.4])), ("stale", curve(&[0.1, 0.3])), ("never", curve(&[]))])
            .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("sync") && text.contains("stale") && !text.contains("never"), "{text}");
        assert!(
            draw(&folder.path().join("no/figure.svg"), &[])
                .unwrap_err()
                .to_string()
                .contains("no/figure.svg")
        );
    }
}
