/* The contract's `environments`. */
#include "pl_world.inc.h"

/* An episode between calls: its item, its settings and its state, as texts that it owns. */
struct exports_pl_host_plugin_environments_episode_t {
  pl_world_string_t item, settings, state;
};

typedef exports_pl_host_plugin_environments_episode_t episode;

static exports_pl_host_plugin_environments_own_episode_t new_episode(pl_world_string_t item, pl_world_string_t settings,
                                                                     pl_text state) {
  episode *made = out_room(1, sizeof(episode));
  *made = (episode){item, settings, out(state)};
  return exports_pl_host_plugin_environments_episode_new(made);
}

void exports_pl_host_plugin_environments_episode_destructor(episode *old) {
  pl_world_string_free(&old->item);
  pl_world_string_free(&old->settings);
  pl_world_string_free(&old->state);
  free(old);
}

bool exports_pl_host_plugin_environments_static_episode_start(
    pl_world_string_t *item, exports_pl_host_plugin_environments_json_t *settings,
    exports_pl_host_plugin_environments_task_t *task, uint64_t seed,
    exports_pl_host_plugin_environments_own_episode_t *ret, exports_pl_host_plugin_environments_error_t *err) {
  pl_task given = {in(task->id), in(task->data)};
  pl_text state;
  bool started = pl_call_start(in(*item), in(*settings), &given, seed, &state);
  if (started) {
    *ret = new_episode(*item, *settings, state);
  } else {
    out_error(err);
    pl_world_string_free(item);
    pl_world_string_free(settings);
  }
  exports_pl_host_plugin_environments_task_free(task);
  pl_release();
  return started;
}

bool exports_pl_host_plugin_environments_static_episode_restore(
    pl_world_string_t *item, exports_pl_host_plugin_environments_json_t *settings, pl_world_list_u8_t *snapshot,
    exports_pl_host_plugin_environments_own_episode_t *ret, exports_pl_host_plugin_environments_error_t *err) {
  pl_text given = {(const char *)snapshot->ptr, snapshot->len}, state;
  bool restored = pl_call_restore(in(*item), in(*settings), given, &state);
  if (restored) {
    *ret = new_episode(*item, *settings, state);
  } else {
    out_error(err);
    pl_world_string_free(item);
    pl_world_string_free(settings);
  }
  pl_world_list_u8_free(snapshot);
  pl_release();
  return restored;
}

void exports_pl_host_plugin_environments_method_episode_snapshot(episode *self, pl_world_list_u8_t *ret) {
  ret->ptr = out_bytes(self->state.ptr, self->state.len);
  ret->len = self->state.len;
}

bool exports_pl_host_plugin_environments_method_episode_view(episode *self, pl_world_string_t *agent,
                                                             exports_pl_host_plugin_environments_json_t *ret,
                                                             exports_pl_host_plugin_environments_error_t *err) {
  pl_text view;
  bool seen = pl_call_view(in(self->item), in(self->settings), in(self->state), in(*agent), &view);
  if (seen) {
    *ret = out(view);
  } else {
    out_error(err);
  }
  pl_world_string_free(agent);
  pl_release();
  return seen;
}

bool exports_pl_host_plugin_environments_method_episode_apply(
    episode *self, exports_pl_host_plugin_environments_list_agent_action_t *actions,
    exports_pl_host_plugin_environments_outcome_t *ret, exports_pl_host_plugin_environments_error_t *err) {
  pl_json_action *given = pl_alloc(actions->len * sizeof(pl_json_action));
  for (size_t at = 0; at < actions->len; at++) {
    given[at] = (pl_json_action){in(actions->ptr[at].agent), in(actions->ptr[at].action)};
  }
  pl_text state = in(self->state);
  pl_json_outcome outcome;
  bool applied = pl_call_apply(in(self->item), in(self->settings), &state, given, actions->len, &outcome);
  if (applied) {
    pl_world_string_t next = out(state);
    pl_world_string_free(&self->state);
    self->state = next;
    ret->done = outcome.done;
    ret->truncated = outcome.truncated;
    ret->facts = out(outcome.facts);
    ret->evidence = out(outcome.evidence);
  } else {
    out_error(err);
  }
  exports_pl_host_plugin_environments_list_agent_action_free(actions);
  pl_release();
  return applied;
}

bool exports_pl_host_plugin_environments_method_episode_oracle(episode *self, pl_world_string_t *agent,
                                                               exports_pl_host_plugin_environments_option_json_t *ret,
                                                               exports_pl_host_plugin_environments_error_t *err) {
  pl_text action;
  bool advised = pl_call_oracle(in(self->item), in(self->settings), in(self->state), in(*agent), &action, &ret->is_some);
  if (!advised) {
    out_error(err);
  } else if (ret->is_some) {
    ret->val = out(action);
  }
  pl_world_string_free(agent);
  pl_release();
  return advised;
}

bool exports_pl_host_plugin_environments_method_episode_draw(episode *self,
                                                             exports_pl_host_plugin_environments_drawing_form_t form,
                                                             pl_world_option_string_t *ret,
                                                             exports_pl_host_plugin_environments_error_t *err) {
  pl_text drawing;
  bool drawn = pl_call_draw(in(self->item), in(self->settings), in(self->state), (pl_drawing_form)form, &drawing,
                            &ret->is_some);
  if (!drawn) {
    out_error(err);
  } else if (ret->is_some) {
    ret->val = out(drawing);
  }
  pl_release();
  return drawn;
}

bool exports_pl_host_plugin_environments_tasks(pl_world_string_t *item,
                                               exports_pl_host_plugin_environments_json_t *settings,
                                               pl_world_string_t *split, uint64_t start, uint32_t count, uint32_t level,
                                               exports_pl_host_plugin_environments_list_task_t *ret,
                                               exports_pl_host_plugin_environments_error_t *err) {
  pl_task_request request = {in(*split), start, count, level};
  pl_task *tasks;
  bool made = pl_call_tasks(in(*item), in(*settings), &request, &tasks);
  if (made) {
    ret->len = count;
    ret->ptr = out_room(count, sizeof(*ret->ptr));
    for (uint32_t at = 0; at < count; at++) {
      ret->ptr[at].id = out(tasks[at].id);
      ret->ptr[at].data = out(tasks[at].data);
    }
  } else {
    out_error(err);
  }
  pl_world_string_free(item);
  pl_world_string_free(settings);
  pl_world_string_free(split);
  pl_release();
  return made;
}
