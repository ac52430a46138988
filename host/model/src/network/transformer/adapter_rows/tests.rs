//! Groups of adapters beside products for each of them.

use std::path::Path;

use super::*;
use crate::network::config::Config;
use crate::network::tensor_set::TensorSet;

const WIDTH: i64 = 24;

fn config() -> Config {
    let json = format!(
        r#"{{"model_type": "llama", "vocab_size": 8, "hidden_size": {WIDTH}, "num_attention_heads": 3,
             "num_key_value_heads": 3, "num_hidden_layers": 2, "intermediate_size": {WIDTH}, "rms_norm_eps": 1e-5,
             "max_position_embeddings": 64, "tie_word_embeddings": true}}"#
    );
    Config::from_json(&json, Path::new("config.json")).unwrap()
}

fn random(shape: &[i64]) -> Tensor {
    Tensor::randn(shape, (Kind::Double, Device::Cpu))
}

/// An adapter with random factors, whose scale is exact in f32.
fn adapter(rank: usize, targets: &[Projection], scale: f64) -> Adapter {
    let adapter = Adapter::new(&config(), rank, rank as f64 * scale, targets, [1; 32]).unwrap();
    adapter.map(|tensor| random(&tensor.size()))
}

/// Adapters of several ranks, targets and scales.
fn adapters() -> Vec<Adapter> {
    use Projection::{Down, Gate, Q};
    vec![
        adapter(4, &Projection::ALL, 2.0),
        adapter(1, &[Q, Down], 0.5),
        adapter(3, &[Gate, Q], 1.25),
        adapter(2, &Projection::ALL, 4.0),
    ]
}

/// Ranges of rows with gaps, of which one adapter has two and one has none.
const RUNS: [(Range<i64>, usize); 4] = [(2..7, 0), (7..8, 1), (10..13, 3), (13..15, 1)];
const ROWS: i64 = 17;

fn assigned<'a>(adapters: &'a [Adapter], ranks: Option<usize>) -> AdapterRows<'a> {
    let run = |(rows, index): (Range<i64>, usize)| {
        let adapter = &adapters[index];
        IndexedRun { rows, adapter, index, finite: adapter.is_finite().unwrap() }
    };
    AdapterRows::grouped(&RUNS.map(run), ranks).unwrap()
}

/// Output, gradient of the input and gradients of the factors of one projection.
fn run(rows: &AdapterRows<'_>, adapters: &[Adapter], projection: Projection) -> Vec<(String, Tensor)> {
    run_with(rows, adapters, projection, &[])
}

/// As [`run`], with NaN in some rows of the input and of the gradient of the output.
fn run_with(
    rows: &AdapterRows<'_>,
    adapters: &[Adapter],
    projection: Projection,
    broken: &[Range<i64>],
) -> Vec<(String, Tensor)> {
    tch::manual_seed(7);
    let [x, y, dy, dx] = std::array::from_fn(|_| random(&[ROWS, WIDTH]));
    for rows in broken {
        for tensor in [&x, &dy] {
            let _ = tensor.narrow(0, rows.start, rows.end - rows.start).fill_(f64::NAN);
        }
    }
    let gradients: Vec<Adapter> = adapters.iter().map(|adapter| adapter.map(Tensor::zeros_like)).collect();
    let inputs = rows.add(1, projection, &x, &y).unwrap();
    rows.backward(1, projection, &x, &inputs, &dy, &dx, &gradients).unwrap();
    let factors = gradients.iter().flat_map(TensorSet::parameters);
    [("output".to_owned(), y), ("dx".to_owned(), dx)].into_iter().chain(factors).collect()
}

#[test]
fn a_group_has_the_products_of_its_adapters() {
    let adapters = adapters();
    for projection in Projection::ALL {
        let alone = run(&assigned(&adapters, Some(0)), &adapters, projection);
        for ranks in [3, 5, 6, 64] {
            let together = run(&assigned(&adapters, Some(ranks)), &adapters, projection);
            for ((name, got), (_, expected)) in together.iter().zip(&alone) {
                let gap = (got - expected).abs().max().double_value(&[]);
                assert!(gap < 1e-12, "{projection}, groups of {ranks}: {name} differs by {gap}");
            }
        }
        // Each adapter with rows and the projection has a gradient.
        let changed = alone.iter().filter(|(_, tensor)| tensor.abs().max().double_value(&[]) > 0.0).count();
        let with_rows = [0, 1, 3].into_iter().filter(|&i| adapters[i].part(1, projection).is_some()).count();
        assert_eq!(changed, 2 + 2 * with_rows, "{projection}");
    }
}

#[test]
fn ranks_are_added_up_to_a_limit() {
    let adapters = adapters();
    let groups = |ranks: Option<usize>, projection: Projection| {
        let rows = assigned(&adapters, ranks);
        let members =
            |group: &AdapterGroup<'_>| group.members.iter().map(|(_, index)| *index).collect::<Vec<_>>();
        rows.groups[projection as usize].iter().map(members).collect::<Vec<_>>()
    };
    assert_eq!(groups(Some(64), Projection::Q), [vec![0, 1, 3]]);
    assert_eq!(groups(Some(5), Projection::Q), [vec![0, 1], vec![3, 1]]);
    // A rank above the limit is alone.
    assert_eq!(groups(Some(3), Projection::Q), [vec![0], vec![1, 3]]);
    // Only adapters with the projection count.
    assert_eq!(groups(Some(6), Projection::V), [vec![0, 3]]);
    // On the CPU, the rows of an adapter have products of their own, whatever else is in the batch.
    assert_eq!(groups(None, Projection::Q), [vec![0], vec![1], vec![3], vec![1]]);
}

/// NaN in one factor, and in the states of its rows as after a layer: outputs and gradients of all other rows and adapters are
/// as if the adapter were finite.
#[test]
fn an_adapter_that_is_not_finite_affects_its_own_rows_alone() {
    let good = adapters();
    let own_rows = [RUNS[1].0.clone(), RUNS[3].0.clone()];
    let others: Vec<i64> = (0..ROWS).filter(|row| !own_rows.iter().any(|own| own.contains(row))).collect();
    let others = Tensor::from_slice(&others);
    // Its gradients are after those of adapter 0, which has all projections.
    let first = 2 + good[0].parameters().len();
    let own_gradients = first..first + good[1].parameters().len();
    for factor in ['A', 'B'] {
        let broken: Vec<Adapter> = good.iter().map(TensorSet::copy).collect();
        for (name, mut tensor) in broken[1].parameters() {
            if name.contains(&format!("lora_{factor}")) {
                let _ = tensor.fill_(f64::NAN);
            }
        }
        assert!(good[1].is_finite().unwrap() && !broken[1].is_finite().unwrap());
        for projection in [Projection::Q, Projection::Down] {
            let expected = run(&assigned(&good, Some(64)), &good, projection);
            let got = run_with(&assigned(&broken, Some(64)), &broken, projection, &own_rows);
            for (index, ((name, got), (_, expected))) in got.iter().zip(&expected).enumerate() {
                let gap = match index {
                    0 | 1 => got.index_select(0, &others) - expected.index_select(0, &others),
                    _ if own_gradients.contains(&index) => continue,
                    _ => got - expected,
                };
                let gap = gap.abs().max().double_value(&[]);
                assert!(gap < 1e-12, "{factor}, {projection}: {name} differs by {gap}");
            }
            // Its own rows show that it is broken.
            let output = &got[0].1;
            for row in own_rows.iter().flat_map(Clone::clone) {
                assert!(output.get(row).isnan().any().int64_value(&[]) == 1, "{factor}, {projection}");
            }
        }
    }
}

#[test]
fn slots_have_the_products_of_the_adapters_in_them() {
    let adapters = adapters();
    let options = (Kind::Double, Device::Cpu);
    let slots = AdapterSlots::new(&config(), 12, &Projection::ALL, options).unwrap();
    // Whole steps of the kernels.
    assert_eq!(slots.ranks(), 32);
    // With a gap of 2 between the slots of the adapters 1 and 3, in which another one was before.
    let places = [0..4, 4..5, 7..10, 10..12];
    slots.write(5..7, &adapters[3]).unwrap();
    // Another adapter was in the slot before.
    slots.write(4..5, &adapter(1, &Projection::ALL, 1.0)).unwrap();
    for (place, adapter) in places.iter().zip(&adapters) {
        slots.write(place.clone(), adapter).unwrap();
    }
    let scales = Tensor::zeros([ROWS, 32], (Kind::Float, Device::Cpu));
    for (rows, index) in RUNS {
        let (place, scale) = (&places[index], adapters[index].scale());
        let columns = scales.narrow(0, rows.start, rows.end - rows.start);
        let _ = columns.narrow(1, place.start as i64, place.len() as i64).fill_(scale);
    }
    for projection in Projection::ALL {
        let x = random(&[ROWS, WIDTH]);
        let y = random(&[ROWS, WIDTH]);
        let expected = y.copy();
        AdapterRows::in_slots(&slots, &scales).add(1, projection, &x, &y).unwrap();
        assigned(&adapters, Some(0)).add(1, projection, &x, &expected).unwrap();
        let gap = (y - &expected).abs().max().double_value(&[]);
        assert!(gap < 1e-12, "{projection}: {gap}");
    }
    // Projections of the same input.
    for together in [&Projection::ALL[..3], &Projection::ALL[1..3], &Projection::ALL[4..6]] {
        let x = random(&[ROWS, WIDTH]);
        let all = random(&[ROWS, WIDTH * together.len() as i64]);
        let parts = |all: &Tensor| all.chunk(together.len() as i64, 1);
        let expected = all.copy();
        AdapterRows::in_slots(&slots, &scales).add_together(1, together, &x, &all, &[]).unwrap();
        let rows = assigned(&adapters, Some(0));
        rows.add_together(1, together, &x, &expected, &parts(&expected)).unwrap();
        let gap = (all - &expected).abs().max().double_value(&[]);
        assert!(gap < 1e-12, "{together:?}: {gap}");
    }
}

/// The scale of an adapter is applied to sums in f32, also where a group's numbers have 16 bits.
#[test]
fn groups_keep_the_number_format() {
    let adapters: Vec<Adapter> =
        adapters().iter().map(|adapter| adapter.map(|tensor| tensor.to_kind(Kind::Float))).collect();
    let [x, y] = std::array::from_fn(|_| random(&[ROWS, WIDTH]).to_kind(Kind::BFloat16));
    let separate = y.copy();
    let inputs = assigned(&adapters, Some(64)).add(0, Projection::Q, &x, &y).unwrap();
    assert_eq!((inputs.len(), inputs[0].kind(), y.kind()), (1, Kind::BFloat16, Kind::BFloat16));
    assigned(&adapters, Some(0)).add(0, Projection::Q, &x, &separate).unwrap();
    let gap = (y - &separate).abs().max().double_value(&[]);
    assert!(gap <= separate.abs().max().double_value(&[]) / 100.0, "{gap}");
}
