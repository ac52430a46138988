/**
 * @file The workflow language of pl-host (.mas files).
 *
 * This grammar is for editors: it accepts every valid workflow and distinguishes its parts. Rules beyond the form of
 * statements are left to `pl-host check`.
 */

/// <reference types="tree-sitter-cli/dsl" />
// @ts-check

// From the lowest to the highest.
const PRECEDENCE = { or: 1, and: 2, not: 3, compare: 4, add: 5, multiply: 6, negate: 7, access: 8 };

const commas = (rule) => optional(seq(rule, repeat(seq(',', rule)), optional(',')));

// A newline ends a statement. The rule only applies where a statement can end, so a newline within `( )` and `[ ]` is
// white space. A statement that ends with `}` needs no other end.
const statements = (line, braced) =>
  seq(repeat(choice('\n', ';', braced, seq(line, choice('\n', ';')))), optional(line));

module.exports = grammar({
  name: 'mas',

  word: ($) => $.name,

  // One character at a time: a longer match would include the newline that ends a statement.
  extras: ($) => [/\s/, $.comment],

  supertypes: ($) => [$.expression],

  rules: {
    source_file: ($) => statements($._line, $._braced),

    _line: ($) =>
      choice(
        $.workflow,
        $.include,
        $.use,
        $.param,
        alias($._template_line, $.template),
        alias($._block_line, $.block),
        alias($._setting_line, $.setting),
      ),

    _braced: ($) =>
      choice(
        alias($._template_braced, $.template),
        alias($._block_braced, $.block),
        alias($._setting_braced, $.setting),
        $.turns,
      ),

    workflow: ($) => seq('workflow', field('name', $.name)),

    include: ($) => seq('include', field('file', $.string)),

    use: ($) => seq('use', field('file', $.string), 'as', field('name', $.name)),

    param: ($) => seq('param', $._declaration),

    _declaration: ($) =>
      seq(
        field('name', $.name),
        ':',
        field('type', $.type),
        optional(seq('=', field('default', $.expression))),
        optional(seq('in', field('range', choice($.range, $.expression)))),
      ),

    type: ($) => seq(alias($.name, $.type_name), optional(seq('(', $.type, ')'))),

    range: ($) => seq(field('from', $.expression), '..', field('to', $.expression)),

    _template_line: ($) =>
      seq(
        'template',
        field('name', $.name),
        field('parameters', $.parameters),
        '=',
        field('kind', $.block_kind),
        optional(field('value', $.expression)),
      ),

    _template_braced: ($) => seq($._template_line, field('body', $.body)),

    parameters: ($) => seq('(', commas($.parameter), ')'),

    parameter: ($) => $._declaration,

    _block_line: ($) =>
      seq(
        field('kind', $.block_kind),
        field('name', $.name),
        optional(seq('=', field('value', $.expression))),
      ),

    _block_braced: ($) =>
      seq(
        choice($._block_line, field('kind', alias($.lone_kind, $.block_kind))),
        field('body', $.body),
      ),

    block_kind: (_) =>
      choice(
        'plugin',
        'model',
        'server',
        'corpus',
        'policy',
        'environment',
        'agent',
        'reward',
        'designer',
        'scenario',
        'evaluate',
      ),

    // Blocks that stand once, and have no name.
    lone_kind: (_) => choice('mix', 'sandbox', 'inference', 'devices', 'cluster', 'train'),

    body: ($) =>
      seq(
        '{',
        statements(
          alias($._setting_line, $.setting),
          choice(alias($._setting_braced, $.setting), $.nested, $.turns),
        ),
        '}',
      ),

    // In a body, `turns` may begin the turns of a scenario or be a key.
    _setting_line: ($) =>
      seq(field('key', choice($.name, alias('turns', $.name))), '=', field('value', $.expression)),

    _setting_braced: ($) => seq($._setting_line, field('body', $.body)),

    nested: ($) => seq(field('kind', $.name), field('body', $.body)),

    turns: ($) => seq('turns', field('body', alias($.turns_body, $.body))),

    turns_body: ($) =>
      seq(
        '{',
        statements(
          choice(alias($._setting_line, $.setting), $.edge),
          alias($._setting_braced, $.setting),
        ),
        '}',
      ),

    edge: ($) =>
      seq(
        $._stop,
        repeat1(seq('->', $._stop)),
        optional(seq('when', field('condition', $.expression))),
      ),

    _stop: ($) => choice($.start, $.end, $.path, $.side_by_side),

    start: (_) => 'start',

    end: (_) => 'end',

    side_by_side: ($) => seq('[', commas($.path), ']'),

    expression: ($) => choice($.conditional, $._operation),

    conditional: ($) =>
      seq(
        'if',
        field('condition', $._operation),
        'then',
        field('then', $._operation),
        'else',
        field('else', $.expression),
      ),

    _operation: ($) => choice($.binary, $.unary, $._primary),

    binary: ($) => {
      const row = (precedence, operators) =>
        prec.left(
          precedence,
          seq(
            field('left', $._operation),
            field('operator', operators),
            field('right', $._operation),
          ),
        );
      return choice(
        row(PRECEDENCE.or, 'or'),
        row(PRECEDENCE.and, 'and'),
        row(PRECEDENCE.compare, choice('==', '!=', '<', '<=', '>', '>=')),
        row(PRECEDENCE.add, choice('+', '-')),
        row(PRECEDENCE.multiply, choice('*', '/', '%')),
      );
    },

    unary: ($) =>
      choice(
        prec(PRECEDENCE.not, seq(field('operator', 'not'), field('operand', $._operation))),
        prec(PRECEDENCE.negate, seq(field('operator', '-'), field('operand', $._operation))),
      ),

    _primary: ($) =>
      choice(
        $.number,
        $.string,
        $.text,
        $.boolean,
        $.list,
        $.path,
        $.call,
        $.index,
        $.parenthesized,
      ),

    parenthesized: ($) => seq('(', $.expression, ')'),

    list: ($) => seq('[', commas($.expression), ']'),

    call: ($) =>
      prec(PRECEDENCE.access, seq(field('callee', $.path), field('arguments', $.arguments))),

    arguments: ($) => seq('(', commas(choice($.expression, $.argument)), ')'),

    argument: ($) => seq(field('name', $.name), '=', field('value', $.expression)),

    index: ($) =>
      prec(PRECEDENCE.access, seq(field('value', $._primary), '[', field('at', $.expression), ']')),

    path: ($) => prec.left(seq($.name, repeat(seq('.', $.name)))),

    boolean: (_) => choice('true', 'false'),

    number: ($) => seq($.digits, optional($.unit)),

    digits: (_) => /[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?/,

    unit: (_) => token.immediate(/[A-Za-z_][A-Za-z0-9_]*/),

    string: ($) =>
      seq(
        '"',
        repeat(choice($.escape, $.interpolation, $._string_content)),
        token.immediate('"'),
      ),

    // Above the comment, which a `#` inside a text is not.
    _string_content: (_) => token.immediate(prec(1, /[^"\\$\n]+|\$/)),

    text: ($) =>
      seq(
        '"""',
        repeat(choice($.escape, $.interpolation, $._text_content)),
        token.immediate(prec(2, '"""')),
      ),

    _text_content: (_) => token.immediate(prec(1, /[^"\\$]+|\$|"/)),

    escape: (_) => token.immediate(prec(2, /\\[ntr"\\$]/)),

    interpolation: ($) => seq(token.immediate(prec(2, '${')), $.expression, '}'),

    name: (_) => /[A-Za-z_][A-Za-z0-9_]*/,

    comment: (_) => token(prec(-1, /#[^\n]*/)),
  },
});
