//! Tests of the group of ranks: sums, divided work, ranks that are missing or refused.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;

fn settings(ranks: usize) -> RankSettings {
    RankSettings { ranks, name: "run-1, learner 0".to_owned(), secret: b"secret".to_vec() }
}

fn local() -> (TcpListener, String) {
    let listener = listen(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).to_string()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Runs `work` on every rank of a group, each on a thread.
fn on_all<T: Send>(ranks: usize, work: impl Fn(RankGroup) -> T + Sync) -> Vec<T> {
    let (listener, address) = local();
    let (settings, work) = (&settings(ranks), &work);
    std::thread::scope(|scope| {
        let followers: Vec<_> = (1..ranks)
            .map(|rank| {
                let address = address.clone();
                scope.spawn(move || {
                    work(RankGroup::join(&address, rank, settings, &|| false).unwrap().unwrap())
                })
            })
            .collect();
        let leader = RankGroup::lead(&listener, settings, &mut |_| {}, &|| false).unwrap().unwrap();
        let mut results = vec![work(leader)];
        results.extend(followers.into_iter().map(|thread| thread.join().unwrap()));
        results
    })
}

#[test]
fn messages_of_all_ranks_come_in_their_order() {
    let results = on_all(4, |group| {
        let messages = group.gather(&vec![group.rank() as u8; 3 * group.rank()]).unwrap();
        (group.rank(), messages)
    });
    for (index, (rank, messages)) in results.into_iter().enumerate() {
        assert_eq!(index, rank);
        let expected: Vec<Vec<u8>> = (0..4u8).map(|of| vec![of; 3 * usize::from(of)]).collect();
        assert_eq!(messages, expected);
    }
}

#[test]
fn sums_are_added_in_the_order_of_ranks() {
    // In this order alone, the large numbers are gone before the small one comes.
    let of_rank = [1e8f32, -1e8, 0.125];
    for count in [1, 2, 7, 100_000] {
        let sums = on_all(3, |group| {
            let mut numbers: Vec<f32> =
                (0..count).map(|index| of_rank[group.rank()] + index as f32).collect();
            group.sum(&mut numbers).unwrap();
            numbers
        });
        let expected = |index: usize| {
            let numbers = of_rank.map(|own| own + index as f32);
            (numbers[0] + numbers[1]) + numbers[2]
        };
        let expected: Vec<f32> = (0..count).map(expected).collect();
        assert!(sums.iter().all(|own| *own == expected));
    }
    assert_ne!(of_rank[0] + (of_rank[1] + of_rank[2]), 0.125);
}

#[test]
fn a_rank_that_goes_is_named_by_the_others() {
    let results = on_all(3, |group| match group.rank() {
        2 => None,
        _ => Some(group.gather(&[7; 1 << 20]).unwrap_err().to_string()),
    });
    assert!(results[0].as_ref().unwrap().starts_with("rank "), "{results:?}");
    assert!(results[1].as_ref().unwrap().contains("is away"), "{results:?}");
}

#[test]
fn announcements_reach_all_and_a_wait_can_be_ended() {
    let waited = Barrier::new(3);
    let results = on_all(3, |group| {
        if group.rank() == 0 {
            group.announce(b"update 1").unwrap();
            waited.wait();
            return None;
        }
        let first = group.await_announcement(&|| false).unwrap();
        let second = group.await_announcement(&|| true).unwrap();
        assert_eq!(second, None);
        waited.wait();
        first
    });
    assert_eq!(results, [None, Some(b"update 1".to_vec()), Some(b"update 1".to_vec())]);
}

#[test]
fn strangers_and_ranks_of_other_learners_are_refused() {
    let (listener, address) = local();
    let ended = AtomicBool::new(false);
    let refusals = std::thread::scope(|scope| {
        let leading = scope.spawn(|| {
            RankGroup::lead(&listener, &settings(2), &mut |_| {}, &|| ended.load(Ordering::Relaxed))
        });
        let join = |rank, settings: &RankSettings| {
            RankGroup::join(&address, rank, settings, &|| false).unwrap_err().to_string()
        };
        let refusals = [
            join(1, &RankSettings { secret: b"another".to_vec(), ..settings(2) }),
            join(1, &RankSettings { name: "run-2, learner 0".to_owned(), ..settings(2) }),
            join(1, &settings(3)),
        ];
        // Neither words of another protocol nor silence stop the leader.
        let stranger = TcpStream::connect(&address).unwrap();
        write_message(&stranger, b"GET / HTTP/1.1").unwrap();
        ended.store(true, Ordering::Relaxed);
        assert!(leading.join().unwrap().unwrap().is_none());
        refusals
    });
    for (refusal, reason) in refusals.iter().zip(["other credentials", "belongs to run-2", "has 2 ranks"]) {
        assert!(refusal.contains(reason) && refusal.contains(&address), "{refusal}");
    }
}

/// Sends a byte of a message now and then, until `is_over`, or the other side hangs up.
fn send_slowly(mut stream: &TcpStream, is_over: &AtomicBool) {
    let message = [&1000u64.to_le_bytes()[..], &[0; 1000]].concat();
    for byte in message {
        if is_over.load(Ordering::Relaxed) || stream.write_all(&[byte]).is_err() {
            return;
        }
        std::thread::sleep(PAUSE / 4);
    }
}

#[test]
fn strangers_that_are_slow_or_silent_keep_no_rank_waiting() {
    let (listener, address) = local();
    let settings = settings(2);
    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    let is_late = || started.elapsed() > LONGEST_HANDSHAKE / 2;
    let _silent = TcpStream::connect(&address).unwrap();
    let slow = TcpStream::connect(&address).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| send_slowly(&slow, &is_over));
        let joining = scope.spawn(|| RankGroup::join(&address, 1, &settings, &is_late));
        let leading = RankGroup::lead(&listener, &settings, &mut |_| {}, &is_late);
        is_over.store(true, Ordering::Relaxed);
        assert!(leading.unwrap().is_some());
        assert!(joining.join().unwrap().unwrap().is_some());
    });
}

#[test]
fn the_time_of_a_handshake_ends_however_often_something_arrives() {
    let (listener, address) = local();
    let slow = TcpStream::connect(&address).unwrap();
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(false).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| send_slowly(&slow, &is_over));
        let deadline = Instant::now() + 4 * PAUSE;
        let read = wire::ReadUntil { stream: &stream, deadline }.read_to_end(&mut Vec::new());
        is_over.store(true, Ordering::Relaxed);
        assert!(read.is_err(), "{read:?}");
        assert!(deadline.elapsed() < LONGEST_HANDSHAKE, "it ended late");
    });
}

#[test]
fn a_process_that_is_started_again_takes_its_rank() {
    let (listener, address) = local();
    let settings = settings(2);
    std::thread::scope(|scope| {
        let leading = scope.spawn(|| {
            let group = RankGroup::lead(&listener, &settings, &mut |_| {}, &|| false)?;
            let lost = group.unwrap().gather(&[1]).unwrap_err();
            let again = RankGroup::lead(&listener, &settings, &mut |_| {}, &|| false)?.unwrap();
            Ok::<_, RankError>((lost, again.gather(&[1])?))
        });
        drop(RankGroup::join(&address, 1, &settings, &|| false).unwrap().unwrap());
        let second = RankGroup::join(&address, 1, &settings, &|| false).unwrap().unwrap();
        assert_eq!(second.gather(&[2]).unwrap(), [[1], [2]]);
        let (lost, messages) = leading.join().unwrap().unwrap();
        assert!(lost.to_string().contains("rank 1 is away"), "{lost}");
        assert_eq!(messages, [[1], [2]]);
    });
}
