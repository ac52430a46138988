//! The table of attacks and faults.

/// Parts that `cargo xtask attack` takes.
pub const PARTS: [&str; 4] = ["sandbox", "plugins", "files", "faults"];

/// A test, by its package and the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    pub package: &'static str,
    pub name: &'static str,
}

impl Test {
    /// Returns the filter of nextest that selects the test.
    pub fn filter(&self) -> String {
        format!("(package(={}) & test(/(^|::){}$/))", self.package, self.name)
    }

    /// Returns true if a test of the package has this name.
    pub fn is(&self, name: &str) -> bool {
        name.strip_suffix(self.name).is_some_and(|before| before.is_empty() || before.ends_with("::"))
    }
}

/// An attack or a fault.
#[derive(Debug)]
pub struct Case {
    pub number: u32,
    pub part: &'static str,
    pub attack: &'static str,
    /// Findings of the security review that it belongs to.
    pub findings: &'static [&'static str],
    /// Tests that show that it fails.
    pub tests: &'static [Test],
    /// Tests that show that it would work without the defence, or that the fault happens: on their own, or beside the attack
    /// in one of `tests`.
    pub controls: &'static [Test],
}

const fn test(package: &'static str, name: &'static str) -> Test {
    Test { package, name }
}

/// Attacks as programs, on each back end. The first one shows all of them to work in an open container.
const PROGRAMS: [Test; 3] = [
    test("pl-sandbox", "attacks_fail_in_docker"),
    test("pl-sandbox", "attacks_fail_in_wasm"),
    test("pl-sandbox", "attacks_fail_in_worker_processes"),
];

/// All cases.
pub const CASES: &[Case] = &[
    Case {
        number: 1,
        part: "sandbox",
        attack: "files that grow and shrink leave memory with the host",
        findings: &["F1"],
        tests: &[
            test("pl-sandbox", "the_host_holds_no_more_than_the_limit"),
            test("pl-sandbox", "worker_processes_hold_no_more_than_the_limit"),
            test("pl-sandbox", "docker_containers_hold_no_more_than_the_limit"),
            test("pl-wasm", "truncated_content_returns_its_memory"),
            test("pl-wasm", "removed_nodes_free_their_place_in_the_limit"),
        ],
        controls: &[
            test("pl-sandbox", "without_a_limit_the_host_holds_what_is_hoarded"),
            test("pl-sandbox", "docker_containers_hold_no_more_than_the_limit"),
        ],
    },
    Case {
        number: 2,
        part: "sandbox",
        attack: "gigabytes of names and handles",
        findings: &["F2"],
        tests: &[
            test("pl-sandbox", "the_host_holds_no_more_than_the_limit"),
            test("pl-sandbox", "worker_processes_hold_no_more_than_the_limit"),
            test("pl-sandbox", "docker_containers_hold_no_more_than_the_limit"),
            test("pl-wasm", "names_and_entries_count"),
            test("pl-wasm", "open_nodes_count_after_their_removal"),
        ],
        controls: &[
            test("pl-wasm", "names_fill_the_host_without_a_limit"),
            test("pl-wasm", "without_their_limits_handles_fill_the_host"),
            test("pl-sandbox", "docker_containers_hold_no_more_than_the_limit"),
        ],
    },
    Case {
        number: 3,
        part: "sandbox",
        attack: "work of the host that costs no fuel: paths, listings",
        findings: &["F20"],
        tests: &[
            test("pl-sandbox", "work_of_the_host_is_paid_for"),
            test("pl-sandbox", "work_of_worker_processes_is_paid_for"),
            test("pl-wasm", "calls_of_the_host_cost_fuel"),
            test("pl-wasm", "zeros_before_the_data_are_counted_each_time"),
            test("pl-wasm", "every_handle_of_a_poll_costs_fuel"),
            test("pl-wasm", "output_that_is_discarded_costs_as_much_as_other"),
            test("pl-wasm", "calls_on_open_handles_cost_fuel"),
            test("pl-wasm", "bytes_that_move_cost_fuel"),
            test("pl-wasm", "paths_of_links_and_moves_cost_fuel"),
            test("pl-wasm", "bytes_that_pass_to_and_from_the_host_cost_fuel"),
            test("pl-wasm", "calls_on_headers_cost_as_much_as_their_largest_size"),
            test("pl-plugin", "all_files_and_bytes_of_a_job_are_paid_for"),
            test("pl-wasm", "charges_return_their_bytes"),
        ],
        controls: &[test("pl-wasm", "calls_without_a_price_go_on_beyond_the_fuel")],
    },
    Case {
        number: 4,
        part: "sandbox",
        attack: "programs that forge their verdict or read hidden tests",
        findings: &["F3"],
        tests: &[
            test("code", "cheats_get_nothing"),
            test("code", "objects_of_a_program_decide_nothing_and_learn_nothing"),
            test("code", "objects_that_tests_did_not_make_get_no_arguments"),
            test("code", "expected_values_never_meet_the_program"),
            test("code", "tests_that_cheat_earn_nothing"),
            test("code", "secrets_never_meet_programs_or_tests"),
        ],
        controls: &[test("code", "cheats_pay_where_the_judge_shares_their_process")],
    },
    Case {
        number: 5,
        part: "sandbox",
        attack: "reports with impossible numbers",
        findings: &["F3"],
        tests: &[
            test("code", "impossible_numbers_stay_in_range"),
            test("code", "no_loop_pays"),
            test("code", "rewards_are_shares"),
        ],
        controls: &[test("code", "a_forged_report_would_pay_a_thousand")],
    },
    Case {
        number: 6,
        part: "sandbox",
        attack: "an engine that starts containers without their limits, and limits that contradict each other",
        findings: &["F9", "L3"],
        tests: &[
            test("pl-sandbox", "docker::containers"),
            test("pl-sandbox", "a_small_job_leaves_room_for_compiled_files_and_reports"),
            test("pl-sandbox", "warnings_about_limits_are_told_from_others"),
            test("pl-supervisor", "a_missing_filter_is_found"),
            test("pl-supervisor", "limits_of_both_versions_are_understood"),
            test("pl-supervisor", "a_kernel_with_version_1_has_the_limits"),
            test("pl-supervisor", "a_kernel_with_version_2_has_the_limits"),
            test("pl-supervisor", "a_limit_that_is_missing_wider_or_none_is_refused"),
            test("pl-supervisor", "a_runtime_of_its_own_may_hide_its_limits_but_not_leave_them_out"),
        ],
        controls: &[test("pl-sandbox", "docker::containers")],
    },
    Case {
        number: 7,
        part: "sandbox",
        attack: "images with volumes, health checks, commands, users, triggers of builds",
        findings: &["F11", "L2"],
        tests: &[
            test("pl-sandbox", "docker::containers"),
            test("pl-supervisor", "writable_mounts_are_found"),
            PROGRAMS[0],
            PROGRAMS[1],
            PROGRAMS[2],
            test("pl-sandbox", "there_is_no_way_out"),
            test("pl-sandbox", "jobs_share_nothing_and_verdicts_keep_their_order"),
        ],
        controls: &[PROGRAMS[0], test("pl-sandbox", "docker::containers")],
    },
    Case {
        number: 8,
        part: "faults",
        attack: "a full disk, within any file of a run and of the caches",
        findings: &[],
        tests: &[
            test("pl-tests", "power::a_disk_full_at_any_kibibyte_ends_a_run_that_continues"),
            test("pl-tests", "kill::a_run_that_can_not_write_says_what_is_left_and_continues"),
            test("pl-wasm", "a_full_disk_costs_the_entry_and_nothing_else"),
            test("pl-model", "a_cache_that_is_full_or_not_a_folder"),
        ],
        controls: &[test("pl-tests", "power::a_disk_full_at_any_kibibyte_ends_a_run_that_continues")],
    },
    Case {
        number: 9,
        part: "faults",
        attack: "SIGKILL at many moments of a run, a sweep and a search",
        findings: &[],
        tests: &[
            test("pl-tests", "kill::tree_with_an_adapter_per_agent"),
            test("pl-tests", "kill::flat_with_a_model_per_agent"),
            test("pl-tests", "kill::rollouts_ahead_of_updates"),
            test("pl-tests", "kill::critics_references_and_refills"),
            test("pl-tests", "kill::copied_references_and_refills_ahead_of_updates"),
            test("pl-tests", "kill::mixtures_and_curricula"),
            test("pl-tests", "kill::sixteen_bit_weights_with_masters"),
            test("pl-tests", "kill::a_sweep_continues_in_the_run_that_was_killed"),
            test("pl-tests", "design::a_killed_search_goes_on"),
        ],
        controls: &[test("pl-tests", "kill::tree_with_an_adapter_per_agent")],
    },
    Case {
        number: 10,
        part: "faults",
        attack: "power loss at any sync: what was not synced is gone",
        findings: &["F18", "L7"],
        tests: &[
            test("pl-tests", "power::a_run_survives_power_loss_at_any_sync"),
            test("pl-toolchain", "a_damaged_folder_is_created_again"),
            test("pl-toolchain", "of_several_set_ups_one_creates_the_folder"),
            test("pl-toolchain", "a_cache_is_writable_by_its_owner_alone"),
        ],
        controls: &[test("pl-tests", "power::without_syncs_a_power_loss_takes_the_run")],
    },
    Case {
        number: 11,
        part: "faults",
        attack: "EIO at the n-th write, sync, rename, creation and removal",
        findings: &[],
        tests: &[
            test("pl-tests", "power::any_write_that_fails_ends_a_run_that_continues_afterwards"),
            test("pl-tests", "power::any_sync_that_fails_ends_a_run_that_continues_afterwards"),
            test("pl-tests", "power::any_rename_that_fails_ends_a_run_that_continues_afterwards"),
            test("pl-tests", "power::any_file_that_can_not_be_created_ends_a_run_that_continues_afterwards"),
            test(
                "pl-tests",
                "power::any_folder_or_link_that_can_not_be_created_ends_a_run_that_continues_afterwards",
            ),
            test("pl-tests", "power::any_removal_that_fails_ends_a_run_that_continues_afterwards"),
        ],
        controls: &[test("pl-tests", "power::any_write_that_fails_ends_a_run_that_continues_afterwards")],
    },
    Case {
        number: 12,
        part: "faults",
        attack: "SIGKILL while a checkpoint is put in its place, replaced or deleted",
        findings: &[],
        tests: &[
            test("pl-tests", "kill::resuming_cleans_up_after_a_kill_at_the_very_end"),
            test("pl-tests", "power::a_kill_at_any_change_of_the_checkpoints_loses_nothing"),
            test("pl-trainer", "a_kill_while_a_checkpoint_is_replaced_leaves_the_one_before"),
            test("pl-trainer", "a_checkpoint_of_the_same_step_is_replaced"),
            test("pl-trainer", "unfinished_checkpoints_are_ignored_and_removed"),
        ],
        controls: &[test("pl-trainer", "a_kill_while_a_checkpoint_is_replaced_leaves_the_one_before")],
    },
    Case {
        number: 13,
        part: "faults",
        attack: "two processes in one run folder",
        findings: &["F7"],
        tests: &[
            test("pl-tests", "kill::a_second_process_is_told_who_writes_into_the_folder"),
            test("pl-run", "a_second_writer_learns_who_holds_the_folder"),
            test("pl-record", "a_second_holder_is_refused_and_learns_of_the_first"),
        ],
        controls: &[
            test("pl-record", "without_the_lock_two_writers_damage_the_log"),
            test("pl-record", "without_the_lock_two_writers_log_a_step_twice"),
        ],
    },
    Case {
        number: 14,
        part: "faults",
        attack: "a resume without checkpoints, or over files of others",
        findings: &["F8", "F24"],
        tests: &[
            test("pl-run", "a_run_without_its_checkpoints_starts_again_only_if_that_is_asked_for"),
            test("pl-run", "files_that_are_not_the_runs_stay"),
            test("pl-run", "a_folder_that_is_not_a_run_is_not_touched"),
            test("pl-record", "a_new_run_overwrites_nothing"),
            test("pl-record", "a_resume_deletes_only_the_runs_own_later_files"),
        ],
        controls: &[test("pl-run", "a_run_without_its_checkpoints_starts_again_only_if_that_is_asked_for")],
    },
    Case {
        number: 15,
        part: "faults",
        attack: "logs with torn lines, holes and missing ends",
        findings: &[],
        tests: &[
            test("pl-record", "a_reopened_log_loses_the_lines_after_the_checkpoint"),
            test("pl-record", "damaged_ends_are_cut_off"),
            test("pl-record", "holes_before_the_checkpoint_are_named"),
            test("pl-record", "a_file_shorter_than_its_checkpoint_is_refused"),
            test("pl-record", "a_bad_line_is_named"),
            test("pl-record", "a_log_that_is_too_short_stops_a_resume_before_anything_is_deleted"),
        ],
        controls: &[test("pl-record", "damaged_ends_are_cut_off")],
    },
    Case {
        number: 16,
        part: "faults",
        attack: "a clock that jumps, midnight, rewards that overflow sums",
        findings: &["F14", "F19"],
        tests: &[
            test("pl-tests", "clock::a_clock_that_jumps_changes_nothing"),
            test("pl-run", "a_resumed_run_keeps_its_date"),
            test("pl-run", "the_template_sees_the_date_of_the_run"),
            test("pl-model", "the_date_of_a_conversation_is_not_that_of_the_clock"),
            test("pl-run", "curves_that_can_not_be_drawn_end_no_run"),
        ],
        controls: &[test("pl-tests", "clock::a_clock_that_jumps_changes_nothing")],
    },
    Case {
        number: 17,
        part: "faults",
        attack: "few file handles, no TMPDIR, a HOME that can't be written",
        findings: &[],
        tests: &[test("pl-tests", "power::a_narrow_shell_gets_an_error_or_a_run")],
        controls: &[test("pl-tests", "power::a_narrow_shell_gets_an_error_or_a_run")],
    },
    Case {
        number: 18,
        part: "sandbox",
        attack: "a restart of the engine in the middle of jobs, pulls and commits",
        findings: &[],
        tests: &[
            test("pl-sandbox", "docker::containers"),
            test("pl-sandbox", "endpoints::endpoints"),
            test("pl-sandbox", "a_restart_of_the_engine_within_a_pull_is_an_error"),
            test("pl-sandbox", "a_pull_that_ends_without_an_image_is_an_error"),
            test("pl-sandbox", "a_restart_of_the_engine_within_a_commit_leaves_no_container"),
        ],
        controls: &[test("pl-sandbox", "docker::containers")],
    },
    Case {
        number: 19,
        part: "sandbox",
        attack: "SIGKILL of pl-host leaves containers and processes",
        findings: &["L14"],
        tests: &[
            test("pl-sandbox", "docker::containers"),
            test("pl-sandbox", "a_process_is_confined_and_ends_with_its_owner"),
            test("pl-sandbox", "a_killed_owner_leaves_no_process"),
        ],
        controls: &[test("pl-sandbox", "docker::containers")],
    },
    Case {
        number: 20,
        part: "sandbox",
        attack: "two pl-hosts in two PID namespaces",
        findings: &["F10"],
        tests: &[
            test("pl-sandbox", "only_owners_that_are_certainly_dead_lose_their_containers"),
            test("pl-sandbox", "a_living_process_of_another_pid_namespace_keeps_its_containers"),
            test("pl-sandbox", "a_start_removes_containers_of_certainly_dead_owners_alone"),
            test("pl-sandbox", "an_engine_that_answers_nonsense_or_stops_is_an_error"),
        ],
        controls: &[test("pl-sandbox", "a_living_process_of_another_pid_namespace_keeps_its_containers")],
    },
    Case {
        number: 21,
        part: "plugins",
        attack: "plugins that wait in the host for ever",
        findings: &["F4"],
        tests: &[
            test("pl-plugin", "a_call_does_not_wait_for_ever"),
            test("pl-plugin", "every_attack_in_every_export_is_reported_correctly"),
            test("pl-plugin", "fuel_ends_every_loop_before_the_clock_does"),
            test("pl-wasm", "waits_count_together"),
        ],
        controls: &[test("pl-plugin", "a_call_does_not_wait_for_ever")],
    },
    Case {
        number: 22,
        part: "plugins",
        attack: "host memory through handles, fields and listings",
        findings: &["F5"],
        tests: &[
            test("pl-plugin", "a_hundred_thousand_handles_of_any_kind_are_refused"),
            test("pl-plugin", "the_number_of_handles_has_a_limit_that_depends_on_the_grant_of_http"),
            test("pl-plugin", "the_hosts_memory_returns_to_where_it_was"),
            test("pl-plugin", "parts_of_a_request_have_a_limit"),
            test("pl-plugin", "responses_count_against_memory"),
            test("pl-plugin", "a_gigabyte_is_refused_before_it_is_copied"),
            test("pl-plugin", "without_a_grant_all_access_is_refused"),
        ],
        controls: &[
            test("pl-wasm", "without_their_limits_handles_fill_the_host"),
            test("pl-plugin", "responses_count_against_memory"),
        ],
    },
    Case {
        number: 23,
        part: "plugins",
        attack: "components that take minutes or gigabytes to compile, or minutes to describe",
        findings: &["L12"],
        tests: &[
            test("pl-wasm", "what_would_take_gigabytes_or_minutes_is_refused_before"),
            test("pl-run", "a_component_that_does_not_describe_itself_is_given_up"),
            test("pl-wasm", "a_component_of_too_many_parts_leaves_the_others_their_room"),
            test("pl-plugin", "every_beginning_of_a_plugin_is_refused"),
        ],
        controls: &[
            test("pl-wasm", "a_short_component_takes_the_compiler_much_memory"),
            test("pl-run", "a_component_that_does_not_describe_itself_is_given_up"),
        ],
    },
    Case {
        number: 24,
        part: "files",
        attack: "control tokens in tasks, roles, tools and where texts meet",
        findings: &["F23"],
        tests: &[
            test("pl-model", "control_tokens_in_texts_are_text"),
            test("pl-model", "control_tokens_in_tools_are_text"),
            test("pl-model", "neither_roles_nor_texts_that_meet_make_control_tokens"),
            test("pl-model", "what_the_normaliser_makes_a_control_token_is_divided"),
            test("pl-serve", "every_kind_of_bad_request_gets_an_error_of_openai_s_form"),
        ],
        controls: &[test("pl-model", "control_tokens_in_texts_are_text")],
    },
    Case {
        number: 25,
        part: "plugins",
        attack: "rewards that are NaN, huge or missing",
        findings: &["F19"],
        tests: &[
            test("pl-plugin", "a_reward_that_is_nan_or_omits_an_agent_is_refused"),
            test("pl-plugin", "invalid_return_values_are_reported"),
            test("pl-plugin", "rewards_of_any_size_within_the_range_pass_and_no_others"),
        ],
        controls: &[test("pl-run", "rewards_beyond_the_range_spoil_the_advantages")],
    },
    Case {
        number: 26,
        part: "plugins",
        attack: "granted names that lead into the own network, redirects, slow and endless answers",
        findings: &["F26"],
        tests: &[
            test("pl-plugin", "a_granted_name_does_not_lead_into_the_own_network"),
            test("pl-plugin", "a_granted_host_can_be_asked_and_no_other"),
            test("pl-plugin", "an_incomplete_answer_is_an_error"),
            test("pl-plugin", "a_redirect_is_not_followed"),
            test("pl-plugin", "an_answer_without_an_end_is_given_up"),
            test("pl-wasm", "only_addresses_that_the_grant_covers_are_used"),
            test("pl-wasm", "addresses_of_the_own_network_are_not_public"),
        ],
        controls: &[
            test("pl-plugin", "a_granted_name_does_not_lead_into_the_own_network"),
            test("pl-plugin", "a_redirect_is_not_followed"),
            test("pl-plugin", "an_answer_without_an_end_is_given_up"),
        ],
    },
    Case {
        number: 27,
        part: "plugins",
        attack: "floods of log lines and of denied requests",
        findings: &["F21"],
        tests: &[
            test("pl-plugin", "a_flood_of_log_lines_is_cut"),
            test("pl-wasm", "denied_requests_cost_fuel_and_are_counted"),
            test("pl-plugin", "lines_of_all_calls_count_together_for_a_minute"),
            test("pl-plugin", "a_denied_host_is_reported_once"),
        ],
        controls: &[test("pl-plugin", "a_flood_of_log_lines_is_cut")],
    },
    Case {
        number: 28,
        part: "files",
        attack: "mutated models, tokenizers, workflows, tasks, traces, tables and frames",
        findings: &["F13", "F25", "L4", "L5"],
        tests: &[
            test("pl-model", "fuzz::gguf"),
            test("pl-model", "fuzz::safetensors_headers"),
            test("pl-model", "fuzz::config_json"),
            test("pl-model", "fuzz::tokenizer_json"),
            test("pl-model", "inconsistent_tensors_are_refused"),
            test("pl-model", "headers_that_claim_too_much_are_refused_soon"),
            test("pl-model", "a_tokenizer_whose_work_is_out_of_proportion_is_refused"),
            test("pl-model", "a_table_that_writes_long_texts_is_refused"),
            test("pl-inference", "a_model_that_claims_millions_of_positions_takes_no_more_memory"),
            test("pl-run", "fuzz::workflow_json"),
            test("pl-run", "fuzz::trace_lines"),
            test("pl-run", "fuzz::trace_files"),
            test("pl-run", "a_stored_workflow_has_no_index_or_name_that_leads_elsewhere"),
            test("pl-run", "a_trace_that_claims_too_many_candidates_is_an_error"),
            test("pl-record", "a_line_that_would_fill_the_memory_is_an_error"),
            test("pl-data", "parquet"),
            test("pl-parquet", "a_page_header_ends_with_its_column"),
            test("pl-parquet", "booleans_in_a_list_are_refused_wherever_they_stand"),
            test("pl-parquet", "a_deep_schema_is_refused"),
            test("pl-parquet", "a_field_of_another_type_is_refused"),
            test("pl-parquet", "a_schema_that_takes_much_memory_is_refused"),
            test("pl-parquet", "a_number_that_its_field_has_no_bits_for_is_refused"),
            test("pl-parquet", "pages_are_of_one_column_alone"),
            test("pl-parquet", "an_index_between_pages_is_refused"),
            test("pl-parquet", "values_that_a_dictionary_claims_are_counted"),
            test("pl-parquet", "encodings_that_cannot_be_counted_are_refused"),
            test("pl-parquet", "rows_without_values_are_refused"),
            test("pl-parquet", "a_text_that_a_list_repeats_is_counted_for_each_element"),
            test("pl-record", "transitions"),
            test("pl-supervisor", "messages"),
            test("pl-supervisor", "tasks"),
            test("pl-sandbox", "fuzz::verdicts"),
            test("pl-dsl", "checks"),
            test("pl-dsl", "formats"),
            test("pl-lsp", "fuzz::edits"),
            test("pl-sandbox", "verdicts_do_not_nest"),
            test("pl-run", "verdicts_that_no_sandbox_gives_are_refused"),
        ],
        controls: &[test("pl-testing", "a_reader_that_panics_is_found")],
    },
    Case {
        number: 29,
        part: "files",
        attack: "chat templates without an end, or that take all memory",
        findings: &["F12"],
        tests: &[
            test("pl-model", "hostile_templates_end_soon_with_an_error"),
            test("pl-model", "hoarding_templates_stay_within_the_limit"),
            test("pl-model", "deep_values_are_an_error_of_their_prompt"),
        ],
        controls: &[
            test("pl-jinja", "without_a_limit_a_hostile_template_goes_on"),
            test("pl-model", "without_an_instance_hostile_templates_take_the_memory"),
        ],
    },
    Case {
        number: 30,
        part: "files",
        attack: "workflows and runs of strangers, opened, checked and run",
        findings: &["F6", "F15", "F16", "F17", "F22", "F25", "L13", "L15"],
        tests: &[
            test("pl-tests", "permissions::a_plan_lists_what_is_needed_and_sends_nothing"),
            test("pl-tests", "permissions::commands_read_no_text_outside_of_the_folder"),
            test("pl-tests", "permissions::special_files_and_folders_of_the_system_end_a_check_soon"),
            test("pl-tests", "permissions::huge_files_do_not_hold_up_a_plan"),
            test("pl-tests", "permissions::an_editor_reads_no_text_outside_of_the_folder"),
            test("pl-tests", "permissions::an_answer_at_the_terminal_allows_a_run"),
            test("pl-run", "foreign::a_run_of_somebody_else_needs_consent_for_its_components"),
            test("pl-run", "foreign::a_changed_text_or_record_of_permissions_makes_a_run_foreign"),
            test("pl-run", "foreign::a_file_that_was_changed_since_brings_nothing_into_a_run"),
            test("pl-run", "foreign::a_foreign_run_does_not_choose_its_own_folder"),
            test("pl-run", "foreign::the_permissions_of_a_run_are_no_other_runs_own"),
            test("pl-run", "a_check_does_not_tell_which_files_exist_elsewhere"),
            test("pl-run", "a_value_is_no_permission_for_what_a_link_of_the_workflow_leads_to"),
            test("pl-run", "what_is_open_is_checked_and_not_what_its_path_led_to_before"),
            test("pl-run", "models_adapters_task_files_and_corpora_are_checked_once_they_are_open"),
            test("pl-run", "a_file_of_a_model_that_becomes_a_link_is_refused"),
            test("pl-run", "a_file_for_workers_that_becomes_a_link_is_refused"),
            test("pl-record", "what_was_added_or_removed_or_changed_is_a_difference"),
            test("pl-record", "another_image_of_the_same_name_is_a_difference"),
            test("pl-sandbox", "the_ids_of_an_image_are_those_of_the_engines_that_have_it"),
            test("pl-run", "links_in_a_run_are_refused"),
            test("pl-run", "a_workflow_is_a_file_of_a_few_megabytes"),
            test("pl-run", "a_failure_is_remembered_and_descriptions_share_their_time"),
            test("pl-data", "a_packed_file_is_not_unpacked_beyond_the_limit"),
            test("pl-record", "a_device_or_a_huge_file_is_not_read"),
            test("pl-record", "a_table_is_not_read_beyond_the_limit"),
            test("pl-record", "what_a_table_has_once_is_counted_wherever_it_stands"),
            test("pl-trainer", "a_manifest_that_is_a_pipe_or_huge_is_not_read"),
            test("pl-trainer", "names_links_and_pipes_do_not_lead_out_of_a_checkpoint"),
            test("pl-trainer", "a_sparse_file_in_a_checkpoint_is_not_read"),
            test("pl-model", "texts_of_any_size_are_not_read"),
            test("pl-record", "devices_and_refused_files_below_a_folder_are_errors"),
            test("pl-wasm", "links_out_of_a_folder_are_refused"),
            test("pl-run", "flags_allow_exactly_what_is_wanted"),
            test("pl-run", "a_request_is_one_line_whatever_its_names_have"),
            test("pl-run", "a_check_opens_no_grant"),
            test("pl-host", "control_characters_become_symbols"),
            test("pl-lsp", "only_the_last_text_of_each_open_document_waits"),
            test("pl-toolchain", "only_the_owner_can_write_where_tools_run_without_a_project"),
            test("pl-toolchain", "modules_of_the_working_folder_are_not_run"),
            test("pl-toolchain", "modules_of_the_project_are_not_run_by_the_build"),
            test("pl-toolchain", "programs_of_the_working_folder_are_not_found"),
            test("pl-toolchain", "a_build_writes_only_into_the_project"),
            test("pl-model", "damaged_files"),
        ],
        controls: &[
            test("pl-tests", "permissions::a_text_that_is_allowed_is_read"),
            test("pl-tests", "permissions::a_server_that_is_allowed_is_reached"),
            test("pl-run", "foreign::a_trusted_run_continues_and_is_the_users_own_afterwards"),
        ],
    },
    Case {
        number: 31,
        part: "sandbox",
        attack: "memory of an earlier program or episode that was swapped out when it ended",
        findings: &[],
        tests: &[test("pl-wasm", "memory_of_an_earlier_guest_is_never_seen")],
        controls: &[test("pl-wasm", "memory_of_an_earlier_guest_is_never_seen")],
    },
];

/// Findings of the review without a case, each with what stands instead.
#[cfg(test)]
const WITHOUT_CASE: [(&str, &str); 6] = [
    ("L1", "jobs of one container can count its processes and read its peak of memory: docs/sandbox.md"),
    ("L6", "Miri would show it, in `a_group_of_heads_writes_its_own_outputs_alone` of the kernels"),
    ("L8", "keys in addresses and cookies are redacted, bodies of responses are not: docs/security.md"),
    ("L9", "a plan shows the most that sandboxed programs take, in a test of `pl-run`"),
    ("L10", "agents and rewards that keep a state are found by `plugin test`, not at run time"),
    ("L11", "a test of the command line's arguments"),
];

#[cfg(test)]
mod tests;
