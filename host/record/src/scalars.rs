//! Numbers of a line of metrics, each under a path, for tools that show series of numbers.

use serde_json::Value;

/// Returns the numbers of a line of `metrics.jsonl` or `timings.jsonl` by path, such as `agents/tool/reward`. Numbers of
/// the line itself are below `rollouts`, those of an evaluation below `evaluations/NAME`, seconds below `seconds`. The step
/// and the timeline are left out. True is 1.
pub fn scalars(line: &Value) -> Vec<(String, f64)> {
    let mut numbers = Vec::new();
    let Some(fields) = line.as_object() else { return numbers };
    let evaluation = (line.get("kind").and_then(Value::as_str) == Some("evaluation"))
        .then(|| line.get("name").and_then(Value::as_str).unwrap_or("evaluation"));
    for (key, value) in fields.iter().filter(|(key, _)| !["step", "timeline"].contains(&key.as_str())) {
        let path = match evaluation {
            Some(name) => format!("evaluations/{name}/{key}"),
            None if value.is_object() => key.clone(),
            None if key.ends_with("tokens_per_second") => format!("rates/{key}"),
            None if key.ends_with("memory_bytes") => format!("memory/{key}"),
            None => format!("rollouts/{key}"),
        };
        collect(path, value, &mut numbers);
    }
    numbers
}

fn collect(path: String, value: &Value, numbers: &mut Vec<(String, f64)>) {
    match value {
        Value::Number(number) => numbers.extend(number.as_f64().map(|number| (path, number))),
        Value::Bool(flag) => numbers.push((path, f64::from(*flag))),
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| collect(format!("{path}/{key}"), value, numbers));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, value)| collect(format!("{path}/{index}"), value, numbers));
        }
        Value::Null | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_have_the_path_of_their_fields() {
        let step = json!({ "kind": "step", "step": 3, "rollout_success": 0.5, "none": null,
            "agents": { "tool": { "reward": 1.5, "by_turn": [{ "reward": 2 }] } } });
        let expected = [
            ("rollouts/rollout_success", 0.5),
            ("agents/tool/reward", 1.5),
            ("agents/tool/by_turn/0/reward", 2.0),
        ];
        assert_eq!(scalars(&step), expected.map(|(path, number)| (path.to_owned(), number)));
        let evaluation = json!({ "kind": "evaluation", "step": 3, "name": "test", "success": 0.25 });
        assert_eq!(scalars(&evaluation), [("evaluations/test/success".to_owned(), 0.25)]);
        let times = json!({ "step": 3, "seconds": { "play": 2.0 }, "sampled_tokens_per_second": 9.0 });
        let expected = [("seconds/play", 2.0), ("rates/sampled_tokens_per_second", 9.0)];
        assert_eq!(scalars(&times), expected.map(|(path, number)| (path.to_owned(), number)));
    }
}
