;; A guest that polls one pollable under many handles, and one that keeps many pollables.
(component $c
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "poll" (func (param "in" (list (borrow $pollable))) (result (list u32))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer $c $pollable (type $outer))
    (export "pollable" (type $pollable (eq $outer)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
  ;; The list of handles is in the first page, the answer in the second.
  (core module $libc
    (memory (export "memory") 2)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536)))
  (core instance $libc (instantiate $libc))
  (core func $core_subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $core_poll (canon lower (func $poll "poll")
    (memory (core memory $libc "memory")) (realloc (core func $libc "cabi_realloc"))))
  (core module $m
    (import "libc" "memory" (memory 2))
    (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "host" "poll" (func $poll (param i32 i32 i32)))
    ;; Returns the number of handles that are ready.
    (func (export "poll") (param $handles i32) (result i32)
      (local $handle i32)
      (local $n i32)
      (local.set $handle (call $subscribe (i64.const 0)))
      (loop $again
        (i32.store (i32.mul (local.get $n) (i32.const 4)) (local.get $handle))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $n) (local.get $handles))))
      (call $poll (i32.const 0) (local.get $handles) (i32.const 131064))
      (i32.load (i32.const 131068)))
    ;; Takes so many pollables and drops none. Returns their number.
    (func (export "hoard") (param $handles i32) (result i32)
      (local $n i32)
      (loop $again
        (drop (call $subscribe (i64.const 0)))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $n) (local.get $handles))))
      (local.get $n)))
  (core instance $i (instantiate $m
    (with "libc" (instance $libc))
    (with "host" (instance (export "subscribe" (func $core_subscribe)) (export "poll" (func $core_poll))))))
  (func (export "poll") (param "handles" u32) (result u32) (canon lift (core func $i "poll")))
  (func (export "hoard") (param "handles" u32) (result u32) (canon lift (core func $i "hoard"))))
