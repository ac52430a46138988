/* The contract's `agents`. */
#include "pl_world.inc.h"

static exports_pl_host_plugin_agents_part_t out_part(const pl_part *part) {
  exports_pl_host_plugin_agents_part_t made = {0};
  if (part->kind == PL_PART_TEXT) {
    made.tag = EXPORTS_PL_HOST_PLUGIN_AGENTS_PART_TEXT;
    made.val.text = out(part->text);
    return made;
  }
  bool image = part->kind == PL_PART_IMAGE;
  made.tag = image ? EXPORTS_PL_HOST_PLUGIN_AGENTS_PART_IMAGE : EXPORTS_PL_HOST_PLUGIN_AGENTS_PART_DATA;
  exports_pl_host_plugin_agents_blob_t blob = {out(part->mime), {out_bytes(part->bytes, part->len), part->len}};
  if (image) {
    made.val.image = blob;
  } else {
    made.val.data = blob;
  }
  return made;
}

static exports_pl_host_plugin_agents_message_t out_message(const pl_message *message) {
  exports_pl_host_plugin_agents_message_t made = {0};
  made.role = (exports_pl_host_plugin_agents_role_t)message->role;
  made.parts.len = message->parts.count;
  made.parts.ptr = out_room(message->parts.count, sizeof(*made.parts.ptr));
  for (size_t at = 0; at < message->parts.count; at++) {
    made.parts.ptr[at] = out_part(&PL_AT(pl_part, message->parts, at));
  }
  return made;
}

static exports_pl_host_plugin_agents_request_t out_request(const pl_request *request) {
  exports_pl_host_plugin_agents_request_t made = {0};
  made.messages.len = request->messages.count;
  made.messages.ptr = out_room(request->messages.count, sizeof(*made.messages.ptr));
  for (size_t at = 0; at < request->messages.count; at++) {
    made.messages.ptr[at] = out_message(&PL_AT(pl_message, request->messages, at));
  }
  made.tools.len = request->tools.count;
  made.tools.ptr = out_room(request->tools.count, sizeof(*made.tools.ptr));
  for (size_t at = 0; at < request->tools.count; at++) {
    const pl_tool *tool = &PL_AT(pl_tool, request->tools, at);
    made.tools.ptr[at] =
        (exports_pl_host_plugin_agents_tool_t){out(tool->name), out(tool->description), out(tool->parameters)};
  }
  made.stop.len = request->stop.count;
  made.stop.ptr = out_room(request->stop.count, sizeof(*made.stop.ptr));
  for (size_t at = 0; at < request->stop.count; at++) made.stop.ptr[at] = out(PL_AT(pl_text, request->stop, at));
  return made;
}

bool exports_pl_host_plugin_agents_prompt(pl_world_string_t *item, exports_pl_host_plugin_agents_json_t *settings,
                                          exports_pl_host_plugin_agents_json_t *view,
                                          exports_pl_host_plugin_agents_turn_t *turn,
                                          exports_pl_host_plugin_agents_option_request_t *ret,
                                          exports_pl_host_plugin_agents_error_t *err) {
  pl_turn given = {in(turn->agent), turn->visit};
  pl_request request = {{0}, {0}, {0}};
  bool asked = pl_call_prompt(in(*item), in(*settings), in(*view), &given, &request);
  if (asked) {
    ret->is_some = request.messages.count > 0;
    if (ret->is_some) ret->val = out_request(&request);
  } else {
    out_error(err);
  }
  pl_world_string_free(item);
  pl_world_string_free(settings);
  pl_world_string_free(view);
  exports_pl_host_plugin_agents_turn_free(turn);
  pl_release();
  return asked;
}

static pl_tool_call *in_calls(const exports_pl_host_plugin_agents_list_tool_call_t *calls) {
  pl_tool_call *given = pl_alloc(calls->len * sizeof(pl_tool_call));
  for (size_t at = 0; at < calls->len; at++) {
    given[at] = (pl_tool_call){in(calls->ptr[at].name), in(calls->ptr[at].arguments)};
  }
  return given;
}

bool exports_pl_host_plugin_agents_call_tools(pl_world_string_t *item, exports_pl_host_plugin_agents_json_t *settings,
                                              exports_pl_host_plugin_agents_json_t *view,
                                              exports_pl_host_plugin_agents_list_tool_call_t *calls,
                                              pl_world_option_list_string_t *ret,
                                              exports_pl_host_plugin_agents_error_t *err) {
  pl_list results = {0};
  bool called = pl_call_tools(in(*item), in(*settings), in(*view), in_calls(calls), calls->len, &results, &ret->is_some);
  if (!called) {
    out_error(err);
  } else if (ret->is_some) {
    ret->val.len = results.count;
    ret->val.ptr = out_room(results.count, sizeof(*ret->val.ptr));
    for (size_t at = 0; at < results.count; at++) ret->val.ptr[at] = out(PL_AT(pl_text, results, at));
  }
  pl_world_string_free(item);
  pl_world_string_free(settings);
  pl_world_string_free(view);
  exports_pl_host_plugin_agents_list_tool_call_free(calls);
  pl_release();
  return called;
}

bool exports_pl_host_plugin_agents_parse(pl_world_string_t *item, exports_pl_host_plugin_agents_json_t *settings,
                                         exports_pl_host_plugin_agents_json_t *view,
                                         exports_pl_host_plugin_agents_completion_t *completion,
                                         exports_pl_host_plugin_agents_json_t *ret,
                                         exports_pl_host_plugin_agents_error_t *err) {
  pl_tool_call *calls = in_calls(&completion->tool_calls);
  pl_completion given = {in(completion->text), calls, completion->tool_calls.len, (pl_finish)completion->finish};
  pl_text action;
  bool parsed = pl_call_parse(in(*item), in(*settings), in(*view), &given, &action);
  if (parsed) {
    *ret = out(action);
  } else {
    out_error(err);
  }
  pl_world_string_free(item);
  pl_world_string_free(settings);
  pl_world_string_free(view);
  exports_pl_host_plugin_agents_completion_free(completion);
  pl_release();
  return parsed;
}
