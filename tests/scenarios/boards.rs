//! Boards of the planning games in the viewer: recorded ones, and those of an episode that is played.

use pl_testing::chromium::{self, Page};
use serde_json::{Value, json};

use crate::support::{repository, run, succeed};
use crate::view::Viewer;

/// Number of colours of each drawing that is shown: a board that the browser can't draw has one, or none.
const COLOURS: &str = "(async () => { const counts = []; \
    for (const image of document.querySelectorAll('img.drawing')) { await image.decode(); \
    const canvas = Object.assign(document.createElement('canvas'), { width: 96, height: 96 }); \
    const context = canvas.getContext('2d'); context.drawImage(image, 0, 0, 96, 96); \
    const pixels = new Uint32Array(context.getImageData(0, 0, 96, 96).data.buffer); \
    counts.push(new Set(pixels).size); } return counts; })()";

/// Checks that a page shows a number of boards, and that the browser draws each of them.
fn check_boards(page: &mut Page, what: &str, boards: usize) {
    page.wait_for(&format!("document.querySelectorAll('img.drawing').length >= {boards}"));
    let colours = page.eval(COLOURS);
    let colours: Vec<u64> = colours.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
    assert!(colours.len() >= boards && colours.iter().all(|count| *count > 3), "{what}: {colours:?} colours");
}

#[test]
fn boards_of_games_are_shown_in_episodes_in_trees_and_while_playing() {
    if pl_testing::smollm().is_none() || chromium::program().is_none() {
        return;
    }
    let runs = tempfile::tempdir().unwrap();
    let games = [("sokoban", "push"), ("plan-path", "plan"), ("sudoku", "fill")];
    for (game, planner) in games {
        // Short ones: what the model writes doesn't matter.
        let planner = format!("{planner}.max_tokens=8");
        let tool = "tool.max_tokens=8";
        let sets = ["train.steps=1", "train.tasks_per_step=1", "samples=2", "test.limit=1", &planner, tool];
        let sets: Vec<&str> = sets.into_iter().flat_map(|set| ["--set", set]).collect();
        succeed(&mut run(&repository().join(format!("examples/{game}.mas")), &runs.path().join(game), &sets));
    }
    let viewer = Viewer::start(runs.path());
    let Some(mut page) = Page::open(&viewer.page(), 1000, 900) else { return };
    for (game, _) in games {
        let episode = viewer.get(&format!("/api/episode?run={game}&episode=1.0.0"));
        let visits = episode["visits"].as_array().unwrap();
        let is_drawn =
            |branch: &Value| branch["drawing"].as_str().is_some_and(|text| text.starts_with("<svg"));
        let branches = visits[0]["branches"].as_array().unwrap();
        assert!(is_drawn(&visits[0]) && branches.iter().all(is_drawn), "{game}: {episode}");

        // The board at the start, and after each turn.
        page.go(&format!("#episode?run={game}&episode=1.0.0"), "img.drawing");
        check_boards(&mut page, game, 1 + visits.len());
        page.screenshot(&format!("{game}-episode"));
        // The board before and after the candidate.
        page.go(&format!("#episode?run={game}&episode=1.0.0&view=tree"), ".candidate.selected");
        check_boards(&mut page, game, 2);
        page.screenshot(&format!("{game}-tree"));

        page.go(&format!("#play?run={game}"), "textarea");
        page.eval("document.querySelector('button.primary').click()");
        page.wait_for("document.querySelector('.turnhead')?.innerText.includes('earns')");
        check_boards(&mut page, game, 2);
        page.screenshot(&format!("{game}-play"));
        assert_eq!(page.eval("document.querySelectorAll('.error').length"), json!(0), "{game}");
    }
}
