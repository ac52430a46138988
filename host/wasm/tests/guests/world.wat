;; A guest that asks WASI for the time and for randomness.
(component
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock (export "now" (func (result u64)))))
  (import "wasi:random/random@0.2.3" (instance $random (export "get-random-u64" (func (result u64)))))
  (alias export $clock "now" (func $now))
  (alias export $random "get-random-u64" (func $draw))
  (core func $core_now (canon lower (func $now)))
  (core func $core_draw (canon lower (func $draw)))
  (core module $m
    (import "host" "now" (func $now (result i64)))
    (import "host" "draw" (func $draw (result i64)))
    ;; How long a thousand turns of a loop take.
    (func (export "took") (result i64)
      (local $start i64)
      (local $n i32)
      (local.set $start (call $now))
      (loop $again
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $n) (i32.const 1000))))
      (i64.sub (call $now) (local.get $start)))
    ;; How long so many calls of the host take.
    (func (export "apart") (param $calls i32) (result i64)
      (local $start i64)
      (local.set $start (call $now))
      (loop $again
        (drop (call $draw))
        (local.set $calls (i32.sub (local.get $calls) (i32.const 1)))
        (br_if $again (local.get $calls)))
      (i64.sub (call $now) (local.get $start)))
    ;; How long so many turns of a loop take.
    (func (export "work") (param $turns i32) (result i64)
      (local $start i64)
      (local.set $start (call $now))
      (loop $again
        (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))
        (br_if $again (local.get $turns)))
      (i64.sub (call $now) (local.get $start)))
    (func (export "draw") (result i64) (call $draw)))
  (core instance $i (instantiate $m
    (with "host" (instance (export "now" (func $core_now)) (export "draw" (func $core_draw))))))
  (func (export "took") (result u64) (canon lift (core func $i "took")))
  (func (export "apart") (param "calls" u32) (result u64) (canon lift (core func $i "apart")))
  (func (export "work") (param "turns" u32) (result u64) (canon lift (core func $i "work")))
  (func (export "draw") (result u64) (canon lift (core func $i "draw"))))
