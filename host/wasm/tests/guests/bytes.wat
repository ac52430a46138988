;; A guest that passes bytes to the host, and gets some.
(component $c
  (import "wasi:http/types@0.2.0" (instance $http
    (export "fields" (type $fields (sub resource)))
    (type $errors (variant (case "invalid-syntax") (case "forbidden") (case "immutable")))
    (export "header-error" (type $error (eq $errors)))
    (export "outgoing-request" (type $request (sub resource)))
    (export "[constructor]fields" (func (result (own $fields))))
    (export "[static]fields.from-list" (func (param "entries" (list (tuple string (list u8))))
      (result (result (own $fields) (error $error)))))
    (export "[method]fields.has" (func (param "self" (borrow $fields)) (param "name" string) (result bool)))
    (export "[method]fields.append" (func (param "self" (borrow $fields)) (param "name" string)
      (param "value" (list u8)) (result (result (error $error)))))
    (export "[constructor]outgoing-request" (func (param "headers" (own $fields)) (result (own $request))))
    (export "[method]outgoing-request.set-path-with-query" (func (param "self" (borrow $request))
      (param "path-with-query" (option string)) (result (result))))))
  (import "wasi:sockets/network@0.2.0" (instance $sockets
    (export "network" (type $network (sub resource)))
    (type $codes (enum
      "unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory" "timeout" "concurrency-conflict"
      "not-in-progress" "would-block" "invalid-state" "new-socket-limit" "address-not-bindable" "address-in-use"
      "remote-unreachable" "connection-refused" "connection-reset" "connection-aborted" "datagram-too-large"
      "name-unresolvable" "temporary-resolver-failure" "permanent-resolver-failure"))
    (export "error-code" (type (eq $codes)))))
  (alias export $sockets "network" (type $socket_network))
  (alias export $sockets "error-code" (type $socket_error))
  (import "wasi:sockets/instance-network@0.2.0" (instance $own
    (alias outer $c $socket_network (type $outer_network))
    (export "network" (type $network (eq $outer_network)))
    (export "instance-network" (func (result (own $network))))))
  (import "wasi:sockets/ip-name-lookup@0.2.0" (instance $lookup
    (alias outer $c $socket_network (type $outer_network))
    (alias outer $c $socket_error (type $outer_error))
    (export "network" (type $network (eq $outer_network)))
    (export "error-code" (type $error (eq $outer_error)))
    (export "resolve-address-stream" (type $addresses (sub resource)))
    (export "resolve-addresses" (func (param "network" (borrow $network)) (param "name" string)
      (result (result (own $addresses) (error $error)))))))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  ;; Texts are zeros of the first page. Random bytes start at the second, a list at the third, other results at the end of
  ;; the fourth.
  (core module $libc
    (memory (export "memory") 4)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536)))
  (core instance $libc (instantiate $libc))
  (core func $core_fields (canon lower (func $http "[constructor]fields")))
  (core func $core_list (canon lower (func $http "[static]fields.from-list")
    (memory (core memory $libc "memory"))))
  (core func $core_has (canon lower (func $http "[method]fields.has") (memory (core memory $libc "memory"))))
  (core func $core_append (canon lower (func $http "[method]fields.append")
    (memory (core memory $libc "memory"))))
  (core func $core_request (canon lower (func $http "[constructor]outgoing-request")))
  (core func $core_path (canon lower (func $http "[method]outgoing-request.set-path-with-query")
    (memory (core memory $libc "memory"))))
  (core func $core_network (canon lower (func $own "instance-network")))
  (core func $core_resolve (canon lower (func $lookup "resolve-addresses")
    (memory (core memory $libc "memory"))))
  (core func $core_random (canon lower (func $random "get-random-bytes")
    (memory (core memory $libc "memory")) (realloc (core func $libc "cabi_realloc"))))
  (core module $m
    (import "libc" "memory" (memory 4))
    (import "host" "fields" (func $fields (result i32)))
    (import "host" "list" (func $list (param i32 i32 i32)))
    (import "host" "has" (func $has (param i32 i32 i32) (result i32)))
    (import "host" "append" (func $append (param i32 i32 i32 i32 i32 i32)))
    (import "host" "request" (func $request (param i32) (result i32)))
    (import "host" "path" (func $path (param i32 i32 i32 i32) (result i32)))
    (import "host" "network" (func $network (result i32)))
    (import "host" "resolve" (func $resolve (param i32 i32 i32 i32)))
    (import "host" "random" (func $random (param i64 i32)))
    ;; Looks for a header whose name has so many bytes.
    (func (export "header") (param $bytes i32) (result i32)
      (call $has (call $fields) (i32.const 0) (local.get $bytes)))
    ;; Appends a header whose name and value have so many bytes each. Returns 1 if that failed.
    (func (export "append") (param $bytes i32) (result i32)
      (call $append (call $fields) (i32.const 0) (local.get $bytes) (i32.const 0) (local.get $bytes)
        (i32.const 262128))
      (i32.load8_u (i32.const 262128)))
    ;; Makes headers from a list of one, whose name and value have so many bytes each. Returns 1 if that failed.
    (func (export "list") (param $bytes i32) (result i32)
      ;; The addresses of both are 0, as the memory is.
      (i32.store (i32.const 131076) (local.get $bytes))
      (i32.store (i32.const 131084) (local.get $bytes))
      (call $list (i32.const 131072) (i32.const 1) (i32.const 262128))
      (i32.load8_u (i32.const 262128)))
    ;; Sets a path of so many bytes. Returns 1 if that failed.
    (func (export "path") (param $bytes i32) (result i32)
      (call $path (call $request (call $fields)) (i32.const 1) (i32.const 0) (local.get $bytes)))
    ;; Looks up the address of a name of so many bytes. Returns 1 if that failed.
    (func (export "address") (param $bytes i32) (result i32)
      (call $resolve (call $network) (i32.const 0) (local.get $bytes) (i32.const 262128))
      (i32.load8_u (i32.const 262128)))
    ;; Returns the number of random bytes.
    (func (export "random") (param $bytes i32) (result i32)
      (call $random (i64.extend_i32_u (local.get $bytes)) (i32.const 262128))
      (i32.load (i32.const 262132))))
  (core instance $i (instantiate $m
    (with "libc" (instance $libc))
    (with "host" (instance
      (export "fields" (func $core_fields))
      (export "list" (func $core_list))
      (export "has" (func $core_has))
      (export "append" (func $core_append))
      (export "request" (func $core_request))
      (export "path" (func $core_path))
      (export "network" (func $core_network))
      (export "resolve" (func $core_resolve))
      (export "random" (func $core_random))))))
  (func (export "header") (param "bytes" u32) (result u32) (canon lift (core func $i "header")))
  (func (export "append") (param "bytes" u32) (result u32) (canon lift (core func $i "append")))
  (func (export "list") (param "bytes" u32) (result u32) (canon lift (core func $i "list")))
  (func (export "path") (param "bytes" u32) (result u32) (canon lift (core func $i "path")))
  (func (export "address") (param "bytes" u32) (result u32) (canon lift (core func $i "address")))
  (func (export "random") (param "bytes" u32) (result u32) (canon lift (core func $i "random"))))
