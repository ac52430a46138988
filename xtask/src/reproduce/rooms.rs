//! Rooms of Sokoban tasks.

use serde_json::Value;

/// Rows of characters.
type Board = Vec<Vec<char>>;

/// Returns the walls and goals of a task, without boxes and the player. Rooms that are images of each other under
/// rotation and reflection are one room, as in the splits of the plugin. Returns `None` if the data is not of such a
/// task.
pub fn room(data: &str) -> Option<String> {
    let data: Value = serde_json::from_str(data).ok()?;
    let row = |row: &Value| -> Option<Vec<char>> { Some(row.as_str()?.chars().map(without_piece).collect()) };
    let board: Board = data["room"].as_array()?.iter().map(row).collect::<Option<_>>()?;
    let rotations = std::iter::successors(Some(board), |board| Some(rotated(board))).take(4);
    let images = rotations.flat_map(|board| [reflected(&board), board]);
    let rows = images.min()?.into_iter().map(|row| row.into_iter().collect::<String>());
    Some(rows.collect::<Vec<_>>().join("\n"))
}

/// Returns the cell of a room below a piece.
fn without_piece(symbol: char) -> char {
    match symbol {
        '$' | '@' => ' ',
        '*' | '+' => '.',
        other => other,
    }
}

fn rotated(board: &[Vec<char>]) -> Board {
    let width = board.first().map_or(0, Vec::len);
    let column =
        |column: usize| board.iter().rev().filter_map(|row| row.get(column).copied()).collect::<Vec<char>>();
    (0..width).map(column).collect()
}

fn reflected(board: &[Vec<char>]) -> Board {
    board.iter().rev().cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_task(rows: &[&str]) -> Option<String> {
        room(&json!({ "room": rows }).to_string())
    }

    #[test]
    fn tasks_in_images_of_a_room_share_it() {
        let expected = of_task(&["####", "#.@#", "#$ #", "####"]);
        assert!(expected.is_some());
        for image in [
            ["####", "#+ #", "# $#", "####"],
            ["####", "#@*#", "#  #", "####"],
            ["####", "#$ #", "#.@#", "####"],
            ["####", "# $#", "#@.#", "####"],
        ] {
            assert_eq!(of_task(&image), expected, "{image:?}");
        }
        assert_eq!(of_task(&[".$@", "###"]), of_task(&["@#", "$#", ".#"]));
    }

    #[test]
    fn other_walls_and_goals_are_another_room() {
        let one = of_task(&["####", "#.@#", "#$ #", "####"]);
        assert_ne!(of_task(&["####", "#.@#", "#$##", "####"]), one);
        assert_ne!(of_task(&["####", "#.@#", "#$.#", "####"]), one);
        assert_eq!(room(r#"{"maze":[]}"#), None);
        assert_eq!(room("room"), None);
    }
}
