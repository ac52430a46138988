;; A domain that behaves, but for one deed in one place: the test writes both in, so that every case is a component
;; of its own.
;;
;; Places: 0 describe, 1 start, 2 restore, 3 snapshot, 4 view, 5 apply, 6 tasks, 7 prompt, 8 parse, 9 score,
;; 10 the module's start function, 11 the allocator that the host calls, 12 the clean-up after `parse`, 13 oracle,
;; 14 draw, 15 call-tools.
;; Deeds: below 20 they are done on entry ($deed), from 20 on they spoil what is returned ($lie).
(module
  (import "pl-host:plugin/log@0.1.0" "write" (func $write (param i32 i32 i32)))
  (import "pl-host:plugin/random@0.1.0" "next" (func $next (result i64)))
  (import "pl-host:plugin/sandbox@0.1.0" "execute" (func $execute (param i32 i32 i32)))
  (import "pl-host:plugin/retrieval@0.1.0" "retrieve" (func $retrieve (param i32 i32 i32 i32 i32 i32 i32)))
  (import "[export]pl-host:plugin/environments@0.1.0" "[resource-new]episode" (func $new (param i32) (result i32)))
  (memory (export "memory") 2)
  (table $t 1 funcref)
  (type $void (func))
  (global $where i32 (i32.const WHERE))
  (global $what i32 (i32.const WHAT))
  (global $heap (mut i32) (i32.const 8192))

  (data (i32.const 16) "agent")
  (data (i32.const 32) "problems")
  (data (i32.const 48) "score")
  (data (i32.const 64) "{}")
  (data (i32.const 80) "steps")
  (data (i32.const 96) "{\22steps\22: 1}")
  (data (i32.const 112) "one")
  (data (i32.const 120) "\ff\fe")
  ;; The three items at 256, 36 bytes each: kind, name, doc, schema, facts; one fact at 512.
  (data (i32.const 256) "\01\00\00\00" "\10\00\00\00\05\00\00\00" "\00\00\00\00\00\00\00\00" "\40\00\00\00\02\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 292) "\00\00\00\00" "\20\00\00\00\08\00\00\00" "\00\00\00\00\00\00\00\00" "\40\00\00\00\02\00\00\00" "\00\02\00\00\01\00\00\00")
  (data (i32.const 328) "\02\00\00\00" "\30\00\00\00\05\00\00\00" "\00\00\00\00\00\00\00\00" "\40\00\00\00\02\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 512) "\50\00\00\00\05\00\00\00" "\01\00\00\00" "\00\00\00\00\00\00\00\00")
  ;; A message at 600: role user, one part at 620: a text. A task at 640: id and data. A score at 660.
  (data (i32.const 600) "\01\00\00\00" "\6c\02\00\00\01\00\00\00")
  (data (i32.const 620) "\00\00\00\00" "\70\00\00\00\03\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 640) "\70\00\00\00\03\00\00\00" "\40\00\00\00\02\00\00\00")

  (func $alloc (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (block $fits
      (br_if $fits (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
      (br_if $fits (i32.ne (i32.const -1)
        (memory.grow (i32.add (i32.const 1) (i32.shr_u (local.get $size) (i32.const 16))))))
      unreachable)
    (local.get $at))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (call $deed (i32.const 11))
    (if (call $spoils (i32.const 11) (i32.const 21)) (then (return (i32.const -16))))
    (call $alloc (local.get 3)))

  (func $nest (call $nest) (call $nest))
  (func $deed (param $at i32)
    (if (i32.ne (local.get $at) (global.get $where)) (then (return)))
    (if (i32.eq (global.get $what) (i32.const 1)) (then (loop $again (br $again))))
    (if (i32.eq (global.get $what) (i32.const 2)) (then unreachable))
    ;; Grows until it is refused, and gives up.
    (if (i32.eq (global.get $what) (i32.const 3)) (then (loop $again
      (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))) unreachable)))
    ;; Grows until it is refused, and asks again.
    (if (i32.eq (global.get $what) (i32.const 4)) (then (loop $again (drop (memory.grow (i32.const 16))) (br $again))))
    (if (i32.eq (global.get $what) (i32.const 5)) (then (loop $again
      (br_if $again (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))) unreachable)))
    (if (i32.eq (global.get $what) (i32.const 6)) (then (call $nest)))
    (if (i32.eq (global.get $what) (i32.const 7)) (then (loop $again (drop (call $next)) (br $again))))
    (if (i32.eq (global.get $what) (i32.const 8)) (then (loop $again
      (call $write (i32.const 0) (i32.const 0) (i32.const 0)) (br $again))))
    (if (i32.eq (global.get $what) (i32.const 9)) (then (drop (memory.grow (i32.const 16))) (loop $again
      (call $write (i32.const 0) (i32.const 65536) (i32.const 1048576)) (br $again))))
    (if (i32.eq (global.get $what) (i32.const 10)) (then (loop $again
      (call $retrieve (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 16) (i32.const 5) (i32.const 1) (i32.const 2048)) (br $again))))
    (if (i32.eq (global.get $what) (i32.const 11)) (then (loop $again
      (call $execute (i32.const 0) (i32.const 0) (i32.const 2048)) (br $again))))
    (if (i32.eq (global.get $what) (i32.const 12)) (then (loop $again
      (memory.fill (i32.const 65536) (i32.const 7) (i32.const 65536)) (br $again))))
    (if (i32.eq (global.get $what) (i32.const 13)) (then
      (drop (i32.div_u (i32.const 1) (i32.const 0)))))
    (if (i32.eq (global.get $what) (i32.const 14)) (then (drop (i32.load (i32.const -4)))))
    (if (i32.eq (global.get $what) (i32.const 15)) (then (call_indirect (type $void) (i32.const 0))))
    (if (i32.eq (global.get $what) (i32.const 16)) (then (loop $again (drop (call $new (i32.const 1))) (br $again)))))

  (func $spoils (param $at i32) (param $what i32) (result i32)
    (i32.and (i32.eq (local.get $at) (global.get $where)) (i32.eq (local.get $what) (global.get $what))))
  ;; The area of results at 1024, spoilt where the case says so: its discriminant, or the list that stands at $list.
  (func $lie (param $at i32) (param $discriminant i32) (param $list i32) (result i32)
    (local $deep i32)
    (if (call $spoils (local.get $at) (i32.const 20)) (then (i32.store8 (local.get $discriminant) (i32.const 77))))
    ;; Outside of the memory.
    (if (call $spoils (local.get $at) (i32.const 21)) (then
      (i32.store (local.get $list) (i32.const -16))
      (i32.store offset=4 (local.get $list) (i32.const 100))))
    ;; Not UTF-8.
    (if (call $spoils (local.get $at) (i32.const 22)) (then
      (i32.store (local.get $list) (i32.const 120))
      (i32.store offset=4 (local.get $list) (i32.const 2))))
    ;; A gigabyte, all of it there.
    (if (call $spoils (local.get $at) (i32.const 23)) (then
      (drop (memory.grow (i32.const 16384)))
      (i32.store (local.get $list) (i32.const 65536))
      (i32.store offset=4 (local.get $list) (i32.const 1073741824))))
    ;; 100,000 lists in lists.
    (if (call $spoils (local.get $at) (i32.const 24)) (then
      (local.set $deep (call $alloc (i32.const 200000)))
      (memory.fill (local.get $deep) (i32.const 91) (i32.const 100000))
      (memory.fill (i32.add (local.get $deep) (i32.const 100000)) (i32.const 93) (i32.const 100000))
      (i32.store (local.get $list) (local.get $deep))
      (i32.store offset=4 (local.get $list) (i32.const 200000))))
    ;; A refusal: internal, without words.
    (if (call $spoils (local.get $at) (i32.const 27)) (then
      (i64.store (i32.const 1024) (i64.const 1))
      (i32.store8 (i32.const 1028) (i32.const 2))
      (call $set (i32.const 1032) (i32.const 0) (i32.const 0))
      ;; Scores are aligned to 8 bytes, and so is an error in their place.
      (if (i32.eq (local.get $at) (i32.const 9)) (then
        (i32.store8 (i32.const 1032) (i32.const 2))
        (call $set (i32.const 1036) (i32.const 0) (i32.const 0))))))
    ;; The area itself stands where none can.
    (if (call $spoils (local.get $at) (i32.const 25)) (then (return (i32.const 1025))))
    (if (call $spoils (local.get $at) (i32.const 26)) (then (return (i32.const -8))))
    (i32.const 1024))
  (func $set (param $at i32) (param $first i32) (param $second i32)
    (i32.store (local.get $at) (local.get $first))
    (i32.store offset=4 (local.get $at) (local.get $second)))

  (func $begin (call $deed (i32.const 10)))
  (start $begin)

  (func (export "pl-host:plugin/catalog@0.1.0#describe") (result i32)
    (call $deed (i32.const 0))
    (call $set (i32.const 1024) (i32.const 256) (i32.const 3))
    ;; What is spoilt is the first item's kind, and its schema.
    (drop (call $lie (i32.const 0) (i32.const 256) (i32.const 276)))
    (if (call $spoils (i32.const 0) (i32.const 25)) (then (return (i32.const 1025))))
    (if (call $spoils (i32.const 0) (i32.const 26)) (then (return (i32.const -8))))
    (i32.const 1024))

  (func (export "pl-host:plugin/environments@0.1.0#[static]episode.start")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)
    (call $deed (i32.const 1))
    (call $set (i32.const 1024) (i32.const 0) (call $new (i32.const 1)))
    (call $lie (i32.const 1) (i32.const 1024) (i32.const 1028)))
  (func (export "pl-host:plugin/environments@0.1.0#[static]episode.restore")
    (param i32 i32 i32 i32 i32 i32) (result i32)
    (call $deed (i32.const 2))
    (call $set (i32.const 1024) (i32.const 0) (call $new (i32.const 1)))
    (call $lie (i32.const 2) (i32.const 1024) (i32.const 1028)))
  (func (export "pl-host:plugin/environments@0.1.0#[method]episode.snapshot") (param i32) (result i32)
    (call $deed (i32.const 3))
    (call $set (i32.const 1024) (i32.const 112) (i32.const 3))
    (call $lie (i32.const 3) (i32.const 2040) (i32.const 1024)))
  (func (export "pl-host:plugin/environments@0.1.0#[method]episode.view") (param i32 i32 i32) (result i32)
    (call $deed (i32.const 4))
    (i32.store (i32.const 1024) (i32.const 0))
    (call $set (i32.const 1028) (i32.const 64) (i32.const 2))
    (call $lie (i32.const 4) (i32.const 1024) (i32.const 1028)))
  (func (export "pl-host:plugin/environments@0.1.0#[method]episode.apply") (param i32 i32 i32) (result i32)
    (call $deed (i32.const 5))
    ;; Not done, not truncated; the facts at 1032, the evidence at 1040. What is spoilt is the evidence.
    (i64.store (i32.const 1024) (i64.const 0))
    (call $set (i32.const 1032) (i32.const 96) (i32.const 12))
    (call $set (i32.const 1040) (i32.const 64) (i32.const 2))
    (call $lie (i32.const 5) (i32.const 1024) (i32.const 1040)))
  ;; The discriminant at 1024, that of the option at 1028, its text at 1032.
  (func $some (param $at i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 0))
    (i32.store (i32.const 1028) (i32.const 1))
    (call $set (i32.const 1032) (i32.const 64) (i32.const 2))
    (call $lie (local.get $at) (i32.const 1024) (i32.const 1032)))
  (func (export "pl-host:plugin/environments@0.1.0#[method]episode.oracle") (param i32 i32 i32) (result i32)
    (call $deed (i32.const 13))
    (call $some (i32.const 13)))
  (func (export "pl-host:plugin/environments@0.1.0#[method]episode.draw") (param i32 i32) (result i32)
    (call $deed (i32.const 14))
    (call $some (i32.const 14)))
  (func (export "pl-host:plugin/environments@0.1.0#[dtor]episode") (param i32))
  (func (export "pl-host:plugin/environments@0.1.0#tasks") (param i32 i32 i32 i32 i32 i32 i64 i32 i32) (result i32)
    (call $deed (i32.const 6))
    (i32.store (i32.const 1024) (i32.const 0))
    (call $set (i32.const 1028) (i32.const 640) (i32.const 1))
    ;; What is spoilt is the task's data.
    (call $lie (i32.const 6) (i32.const 1024) (i32.const 648)))

  (func (export "pl-host:plugin/agents@0.1.0#prompt") (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $deed (i32.const 7))
    ;; Some request: messages at 1032, no tools, no stops. What is spoilt is the message's text.
    (call $set (i32.const 1024) (i32.const 0) (i32.const 1))
    (call $set (i32.const 1032) (i32.const 600) (i32.const 1))
    (call $set (i32.const 1040) (i32.const 0) (i32.const 0))
    (call $set (i32.const 1048) (i32.const 0) (i32.const 0))
    (call $lie (i32.const 7) (i32.const 1024) (i32.const 624)))
  (func (export "pl-host:plugin/agents@0.1.0#parse") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $deed (i32.const 8))
    (i32.store (i32.const 1024) (i32.const 0))
    (call $set (i32.const 1028) (i32.const 64) (i32.const 2))
    (call $lie (i32.const 8) (i32.const 1024) (i32.const 1028)))
  (func (export "pl-host:plugin/agents@0.1.0#call-tools") (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $deed (i32.const 15))
    ;; A list of one text at 2200, which is what is spoilt.
    (i32.store (i32.const 1024) (i32.const 0))
    (i32.store (i32.const 1028) (i32.const 1))
    (call $set (i32.const 1032) (i32.const 2200) (i32.const 1))
    (call $set (i32.const 2200) (i32.const 64) (i32.const 2))
    (call $lie (i32.const 15) (i32.const 1024) (i32.const 2200)))
  (func (export "cabi_post_pl-host:plugin/agents@0.1.0#parse") (param i32) (call $deed (i32.const 12)))

  (func (export "pl-host:plugin/rewards@0.1.0#score")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $deed (i32.const 9))
    ;; Nothing for the team, one score at 2100 for the agent called "one". What is spoilt is its name.
    (i64.store (i32.const 1024) (i64.const 0))
    (i64.store (i32.const 1032) (i64.const 0))
    (call $set (i32.const 1040) (i32.const 2104) (i32.const 1))
    (i64.store (i32.const 1048) (i64.const 0))
    (call $set (i32.const 2104) (i32.const 112) (i32.const 3))
    (i64.store (i32.const 2112) (i64.const 0))
    (i64.store (i32.const 2120) (i64.const 0))
    (call $lie (i32.const 9) (i32.const 1024) (i32.const 2104))))
