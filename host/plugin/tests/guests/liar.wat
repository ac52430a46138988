;; A domain that does what it is told, the worst included: what it returns is what tests hand in.
;;
;; Agent: `parse` acts on the first character of the view. 0 loops, 1 traps, 2 grows until refused, 3 calls the
;; sandbox, 4 refuses with a message, 5 returns 20 MiB, 6 returns text that is no JSON, all else comes back as it is.
;; Environment: a step's facts are the first action, its evidence the second; an action that starts with 1 traps.
;; The oracle acts on the first character of the agent's name: 0 returns text that is no JSON, 1 traps, all else draws a
;; number and has no action. Drawings in SVG are too large, those in text are "steps". Tools return one result.
;; A task whose record starts with 1 is refused. Reward: the team's is NaN where the step is the last; no agent gets any.
(module
  (import "pl-host:plugin/sandbox@0.1.0" "execute" (func $execute (param i32 i32 i32)))
  (import "pl-host:plugin/random@0.1.0" "next" (func $next (result i64)))
  (import "[export]pl-host:plugin/environments@0.1.0" "[resource-new]episode" (func $new (param i32) (result i32)))
  (memory (export "memory") 1)
  (global $heap (mut i32) (i32.const 4096))

  (data (i32.const 16) "agent")
  (data (i32.const 32) "problems")
  (data (i32.const 48) "score")
  (data (i32.const 64) "{}")
  (data (i32.const 80) "steps")
  (data (i32.const 96) "not {json")
  (data (i32.const 112) "no, thank you")

  ;; The three items at 256, 36 bytes each: kind, name, doc, schema, facts.
  (data (i32.const 256) "\01\00\00\00" "\10\00\00\00\05\00\00\00" "\00\00\00\00\00\00\00\00" "\40\00\00\00\02\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 292) "\00\00\00\00" "\20\00\00\00\08\00\00\00" "\00\00\00\00\00\00\00\00" "\40\00\00\00\02\00\00\00" "\00\02\00\00\01\00\00\00")
  (data (i32.const 328) "\02\00\00\00" "\30\00\00\00\05\00\00\00" "\00\00\00\00\00\00\00\00" "\40\00\00\00\02\00\00\00" "\00\00\00\00\00\00\00\00")
  ;; One fact at 512: name, kind (number), doc.
  (data (i32.const 512) "\50\00\00\00\05\00\00\00" "\01\00\00\00" "\00\00\00\00\00\00\00\00")
  ;; The list of items at 8.
  (data (i32.const 8) "\00\01\00\00\03\00\00\00")

  ;; A bump allocator that grows, and traps where it may not.
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
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (call $alloc (local.get 3)))

  ;; The area of results: the discriminant at 1024, what follows at 1028.
  (func $ok (param $at i32) (param $length i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 0))
    (i32.store (i32.const 1028) (local.get $at))
    (i32.store (i32.const 1032) (local.get $length))
    (i32.const 1024))
  (func $refuse (param $kind i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 1))
    (i32.store (i32.const 1028) (local.get $kind))
    (i32.store (i32.const 1032) (i32.const 112))
    (i32.store (i32.const 1036) (i32.const 13))
    (i32.const 1024))
  (func $starts (param $at i32) (param $digit i32) (result i32)
    (i32.eq (i32.load8_u (local.get $at)) (i32.add (i32.const 48) (local.get $digit))))

  (func (export "pl-host:plugin/catalog@0.1.0#describe") (result i32) (i32.const 8))

  (func (export "pl-host:plugin/agents@0.1.0#prompt") (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    ;; None: the option's discriminant is 0.
    (call $ok (i32.const 0) (i32.const 0)))
  (func (export "pl-host:plugin/agents@0.1.0#parse")
    (param i32 i32 i32 i32) (param $view i32) (param $length i32) (param i32 i32 i32 i32 i32) (result i32)
    (if (call $starts (local.get $view) (i32.const 0)) (then (loop $again (br $again))))
    (if (call $starts (local.get $view) (i32.const 1)) (then unreachable))
    (if (call $starts (local.get $view) (i32.const 2)) (then (loop $again (drop (call $alloc (i32.const 65536))) (br $again))))
    (if (call $starts (local.get $view) (i32.const 3)) (then (call $execute (i32.const 0) (i32.const 0) (i32.const 1040))))
    (if (call $starts (local.get $view) (i32.const 4)) (then (return (call $refuse (i32.const 0)))))
    (if (call $starts (local.get $view) (i32.const 5))
      (then (return (call $ok (call $alloc (i32.const 20971520)) (i32.const 20971520)))))
    (if (call $starts (local.get $view) (i32.const 6)) (then (return (call $ok (i32.const 96) (i32.const 9)))))
    (call $ok (local.get $view) (local.get $length)))

  (data (i32.const 128) "\50\00\00\00\05\00\00\00")
  (func (export "pl-host:plugin/agents@0.1.0#call-tools") (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $some (i32.const 128) (i32.const 1)))

  (func (export "pl-host:plugin/environments@0.1.0#[static]episode.start")
    (param i32 i32 i32 i32 i32 i32) (param $data i32) (param i32 i64) (result i32)
    (if (call $starts (local.get $data) (i32.const 1)) (then (return (call $refuse (i32.const 1)))))
    (call $ok (call $new (i32.const 1)) (i32.const 0)))
  (func (export "pl-host:plugin/environments@0.1.0#[static]episode.restore") (param i32 i32 i32 i32 i32 i32) (result i32)
    (call $ok (call $new (i32.const 1)) (i32.const 0)))
  (func (export "pl-host:plugin/environments@0.1.0#[method]episode.snapshot") (param i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 16))
    (i32.store (i32.const 1028) (i32.const 5))
    (i32.const 1024))
  ;; A view of the random stream: eight digits of its next number.
  (func (export "pl-host:plugin/environments@0.1.0#[method]episode.view") (param i32 i32 i32) (result i32)
    (local $number i64)
    (local $n i32)
    (local.set $number (call $next))
    (i32.store8 (i32.const 1100) (i32.const 49))
    (loop $digit
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (i32.store8 (i32.add (i32.const 1100) (local.get $n))
        (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $number) (i64.const 10)))))
      (local.set $number (i64.div_u (local.get $number) (i64.const 10)))
      (br_if $digit (i32.lt_u (local.get $n) (i32.const 8))))
    (call $ok (i32.const 1100) (i32.const 9)))
  (func (export "pl-host:plugin/environments@0.1.0#[method]episode.apply")
    (param i32) (param $actions i32) (param i32) (result i32)
    (if (call $starts (i32.load offset=8 (local.get $actions)) (i32.const 1)) (then unreachable))
    (i64.store (i32.const 1024) (i64.const 0))
    (i64.store (i32.const 1032) (i64.load offset=8 (local.get $actions)))
    (i64.store (i32.const 1040) (i64.load offset=24 (local.get $actions)))
    (i32.const 1024))
  (func $some (param $at i32) (param $length i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 0))
    (i32.store (i32.const 1028) (i32.const 1))
    (i32.store (i32.const 1032) (local.get $at))
    (i32.store (i32.const 1036) (local.get $length))
    (i32.const 1024))
  (func (export "pl-host:plugin/environments@0.1.0#[method]episode.oracle")
    (param i32) (param $agent i32) (param i32) (result i32)
    (if (call $starts (local.get $agent) (i32.const 0)) (then (return (call $some (i32.const 96) (i32.const 9)))))
    (if (call $starts (local.get $agent) (i32.const 1)) (then unreachable))
    (drop (call $next))
    (call $ok (i32.const 0) (i32.const 0)))
  (func (export "pl-host:plugin/environments@0.1.0#[method]episode.draw") (param i32) (param $form i32) (result i32)
    (local $at i32)
    (if (local.get $form) (then (return (call $some (i32.const 80) (i32.const 5)))))
    (local.set $at (call $alloc (i32.const 300000)))
    (memory.fill (local.get $at) (i32.const 32) (i32.const 300000))
    (call $some (local.get $at) (i32.const 300000)))
  (func (export "pl-host:plugin/environments@0.1.0#[dtor]episode") (param i32))
  ;; No tasks, whatever the count.
  (func (export "pl-host:plugin/environments@0.1.0#tasks")
    (param i32 i32 i32 i32 i32 i32 i64 i32 i32) (result i32)
    (call $ok (i32.const 0) (i32.const 0)))

  (func (export "pl-host:plugin/rewards@0.1.0#score")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (param $done i32) (param i32 i32 i32 i32 i32) (result i32)
    (i64.store (i32.const 1024) (i64.const 0))
    (f64.store (i32.const 1032) (if (result f64) (local.get $done) (then (f64.const nan)) (else (f64.const 0))))
    (i64.store (i32.const 1040) (i64.const 0))
    (i64.store (i32.const 1048) (i64.const 0))
    (i32.const 1024)))
