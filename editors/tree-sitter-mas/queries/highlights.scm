; Classes of the parts of a workflow. Where two patterns fit, the later one counts.

; What stands anywhere.
(comment) @comment
(digits) @number
(unit) @number
(boolean) @boolean
(name) @variable

; Texts.
(string) @string
(text) @string
(escape) @string.escape
(interpolation ["${" "}"] @punctuation.special)

; Statements.
["workflow" "include" "use" "as" "param" "template" "turns" "in"] @keyword
(block_kind) @keyword
(nested kind: (name) @keyword)
(setting key: (name) @property)
(argument name: (name) @property)
(type_name) @type

; What is declared.
(workflow name: (name) @variable.definition)
(use name: (name) @variable.definition)
(param name: (name) @variable.definition)
(block name: (name) @variable.definition)
(template name: (name) @function.definition)
(parameter name: (name) @variable.parameter)

; Turns.
[(start) (end)] @constant.builtin
"when" @keyword

; Expressions.
["if" "then" "else" "and" "or" "not"] @keyword
((path . (name) @variable.builtin)
  (#any-of? @variable.builtin "env" "reward" "turn"))
(call callee: (path (name) @function .))
(call callee: (path . (name) @function.builtin .)
  (#any-of? @function.builtin "min" "max" "floor" "ceil" "round" "len" "join" "lower" "upper" "file"))

; Signs.
["->" "==" "!=" "<" "<=" ">" ">=" "+" "-" "*" "/" "%" "=" ".."] @operator
["(" ")" "[" "]" "{" "}"] @punctuation.bracket
["," "." ":" ";"] @punctuation.delimiter
(interpolation ["${" "}"] @punctuation.special)
