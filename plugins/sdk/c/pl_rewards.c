/* The contract's `rewards`. */
#include "pl_world.inc.h"

bool exports_pl_host_plugin_rewards_score(pl_world_string_t *item, exports_pl_host_plugin_rewards_json_t *settings,
                                          exports_pl_host_plugin_rewards_transition_t *transition,
                                          exports_pl_host_plugin_rewards_scores_t *ret,
                                          exports_pl_host_plugin_rewards_error_t *err) {
  pl_task task = {in(transition->task.id), in(transition->task.data)};
  size_t count = transition->actions.len;
  pl_json_action *actions = pl_alloc(count * sizeof(pl_json_action));
  for (size_t at = 0; at < count; at++) {
    exports_pl_host_plugin_rewards_agent_action_t *action = &transition->actions.ptr[at];
    actions[at] = (pl_json_action){in(action->agent), in(action->action)};
  }
  exports_pl_host_plugin_rewards_outcome_t *said = &transition->outcome;
  pl_json_outcome outcome = {said->done, said->truncated, in(said->facts), in(said->evidence)};
  pl_scores scores = {0};
  bool scored = pl_call_score(in(*item), in(*settings), &task, actions, count, &outcome, &scores);
  if (scored) {
    ret->team = scores.team;
    ret->success = scores.success;
    ret->local.len = scores.local.count;
    ret->local.ptr = out_room(scores.local.count, sizeof(*ret->local.ptr));
    for (size_t at = 0; at < scores.local.count; at++) {
      const pl_agent_score *one = &PL_AT(pl_agent_score, scores.local, at);
      ret->local.ptr[at] =
          (exports_pl_host_plugin_rewards_agent_score_t){out(one->agent), one->reward, one->success};
    }
  } else {
    out_error(err);
  }
  pl_world_string_free(item);
  pl_world_string_free(settings);
  exports_pl_host_plugin_rewards_transition_free(transition);
  pl_release();
  return scored;
}
