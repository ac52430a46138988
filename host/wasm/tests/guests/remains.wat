;; A guest that leaves something in its memory, and one that looks for it.
(component
  (core module $m
    (memory (export "memory") 32)
    ;; Writes a mark into each of 32 pages of 64 KiB, every 4 KiB.
    (func (export "leave") (local $at i32)
      (loop $again
        (i32.store (local.get $at) (i32.const 7))
        (local.set $at (i32.add (local.get $at) (i32.const 4096)))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 2097152)))))
    ;; Counts the marks that are there.
    (func (export "look") (result i32) (local $at i32) (local $found i32)
      (loop $again
        (local.set $found (i32.add (local.get $found) (i32.ne (i32.load (local.get $at)) (i32.const 0))))
        (local.set $at (i32.add (local.get $at) (i32.const 4096)))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 2097152))))
      (local.get $found)))
  (core instance $i (instantiate $m))
  (func (export "leave") (canon lift (core func $i "leave")))
  (func (export "look") (result u32) (canon lift (core func $i "look"))))
