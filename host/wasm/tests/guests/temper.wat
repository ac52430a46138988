;; A guest of every bad temper: one export each.
(component
  (core module $m
    (memory (export "memory") 1)
    (table 1 funcref)
    (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
    (func (export "loop") (loop $again (br $again)))
    (func (export "trap") unreachable)
    (func $deep (export "deep") (call $deep))
    ;; Grows a page at a time until refused, and then gives up as an allocator does.
    (func (export "grow")
      (loop $again
        (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))
        unreachable))
    ;; Asks for too much, is refused, and copes: the answer is -1.
    (func (export "ask") (result i32) (memory.grow (i32.const 60000)))
    ;; More than 32 bits reach.
    (func (export "overreach") (result i32) (memory.grow (i32.const 65536)))
    ;; Asks for what it can't have, again and again: a thousand times; as mere instructions that would be cheap.
    (func (export "beg") (local $n i32)
      (loop $again
        (drop (memory.grow (i32.const 60000)))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $n) (i32.const 1000)))))
    (func (export "widen") (result i32) (table.grow (ref.null func) (i32.const 1000000)))
    ;; A string of a megabyte, of which one page exists; the pages are grown first.
    (func (export "talk") (result i32)
      (drop (memory.grow (i32.const 20)))
      (i32.store (i32.const 0) (i32.const 16))
      (i32.store (i32.const 4) (i32.const 1048576))
      (i32.const 0))
    (func (export "nan") (param f64) (result i64)
      (i64.reinterpret_f64 (f64.sub (local.get 0) (local.get 0)))))
  (core instance $i (instantiate $m))
  ;; A memory of two pages at most by its own words.
  (core module $s
    (memory 1 2)
    (func (export "outgrow") (result i32) (memory.grow (i32.const 2))))
  (core instance $j (instantiate $s))
  (func (export "add") (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add")))
  (func (export "loop") (canon lift (core func $i "loop")))
  (func (export "trap") (canon lift (core func $i "trap")))
  (func (export "deep") (canon lift (core func $i "deep")))
  (func (export "grow") (canon lift (core func $i "grow")))
  (func (export "ask") (result s32) (canon lift (core func $i "ask")))
  (func (export "overreach") (result s32) (canon lift (core func $i "overreach")))
  (func (export "outgrow") (result s32) (canon lift (core func $j "outgrow")))
  (func (export "beg") (canon lift (core func $i "beg")))
  (func (export "widen") (result s32) (canon lift (core func $i "widen")))
  (func (export "talk") (result string) (canon lift (core func $i "talk") (memory (core memory $i "memory"))))
  (func (export "nan") (param "x" f64) (result u64) (canon lift (core func $i "nan"))))
