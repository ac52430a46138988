/* The host's services, in a component. In a plugin's own tests pl_testing.c replaces this file. */
#include "pl_world.inc.h"

uint64_t pl_random(void) { return pl_host_plugin_random_next(); }

/* An argument of an import: borrowed, not copied. */
static pl_world_string_t lent(pl_text text) { return (pl_world_string_t){(uint8_t *)text.ptr, text.len}; }

void pl_log(pl_level level, pl_text message) {
  pl_world_string_t line = lent(message);
  pl_host_plugin_log_write((pl_host_plugin_log_level_t)level, &line);
}

void pl_execute(const pl_job *jobs, size_t count, pl_verdict *verdicts) {
  pl_host_plugin_sandbox_list_job_t asked = {pl_alloc(count * sizeof(pl_host_plugin_sandbox_job_t)), count};
  for (size_t at = 0; at < count; at++) {
    const pl_job *job = &jobs[at];
    pl_host_plugin_sandbox_file_t *files = pl_alloc(job->file_count * sizeof(*files));
    for (size_t file = 0; file < job->file_count; file++) {
      files[file].path = lent(job->files[file].path);
      files[file].bytes = (pl_world_list_u8_t){(uint8_t *)job->files[file].bytes, job->files[file].len};
    }
    asked.ptr[at].language = lent(job->language);
    asked.ptr[at].source = lent(job->source);
    asked.ptr[at].stdin_ = lent(job->stdin_);
    asked.ptr[at].files = (pl_host_plugin_sandbox_list_file_t){files, job->file_count};
  }
  pl_host_plugin_sandbox_list_verdict_t said;
  pl_host_plugin_sandbox_execute(&asked, &said);
  if (said.len != count) __builtin_trap();
  for (size_t at = 0; at < count; at++) {
    pl_host_plugin_sandbox_verdict_t *verdict = &said.ptr[at];
    verdicts[at].ending = (pl_ending)verdict->ending;
    verdicts[at].has_exit = verdict->exit.is_some;
    verdicts[at].exit = verdict->exit.is_some ? verdict->exit.val : 0;
    verdicts[at].stdout_ = pl_copy((const char *)verdict->stdout_.ptr, verdict->stdout_.len);
    verdicts[at].stderr_ = pl_copy((const char *)verdict->stderr_.ptr, verdict->stderr_.len);
  }
  pl_host_plugin_sandbox_list_verdict_free(&said);
}

static bool refused_by(const char *service, pl_world_string_t *why) {
  pl_text words = pl_copy((const char *)why->ptr, why->len);
  pl_world_string_free(why);
  return pl_refuse("%s: %.*s", service, PL_ARG(words));
}

static bool retrieve(pl_world_string_t *corpus, pl_text query, uint32_t k, pl_list *passages) {
  pl_world_string_t asked = lent(query), why;
  pl_host_plugin_retrieval_list_passage_t found;
  if (!pl_host_plugin_retrieval_retrieve(corpus, &asked, k, &found, &why)) return refused_by("retrieval", &why);
  for (size_t at = 0; at < found.len; at++) {
    pl_passage *passage = PL_PUSH(pl_passage, passages);
    passage->id = pl_copy((const char *)found.ptr[at].id.ptr, found.ptr[at].id.len);
    passage->text = pl_copy((const char *)found.ptr[at].text.ptr, found.ptr[at].text.len);
    passage->score = found.ptr[at].score;
  }
  pl_host_plugin_retrieval_list_passage_free(&found);
  return true;
}

bool pl_retrieve(pl_text query, uint32_t k, pl_list *passages) { return retrieve(NULL, query, k, passages); }

bool pl_retrieve_from(pl_text corpus, pl_text query, uint32_t k, pl_list *passages) {
  pl_world_string_t name = lent(corpus);
  return retrieve(&name, query, k, passages);
}

bool pl_ask(pl_text policy, const pl_policy_message *messages, size_t count, uint32_t max_tokens, pl_text *answer) {
  pl_host_plugin_policies_list_message_t asked = {pl_alloc(count * sizeof(pl_host_plugin_policies_message_t)), count};
  for (size_t at = 0; at < count; at++) {
    asked.ptr[at].role = (pl_host_plugin_policies_role_t)messages[at].role;
    asked.ptr[at].text = lent(messages[at].text);
  }
  pl_world_string_t name = lent(policy), text, why;
  if (!pl_host_plugin_policies_ask(&name, &asked, max_tokens, &text, &why)) return refused_by("policies", &why);
  *answer = pl_copy((const char *)text.ptr, text.len);
  pl_world_string_free(&text);
  return true;
}
