"""The commands of HTCondor's submit language, so that a misspelled one is told and not silently ignored.

Source: the command table inside libcondor_utils of HTCondor 25.14.1, with the names its condor_submit manual page adds.
"""

from __future__ import annotations

_COMMANDS = """
accounting_group accounting_group_user allow_arguments_v1 allow_environment_v1 allowed_execute_duration
allowed_job_duration append_files arc_application arc_data_staging arc_resources arc_rte args arguments
aws_access_key_id_file aws_region aws_secret_access_key_file azure_admin_key azure_admin_username azure_auth_file
azure_image azure_location azure_size batch_extra_submit_args batch_id batch_name batch_project batch_queue
batch_runtime buffer_block_size buffer_files buffer_size checkpoint_destination checkpoint_exit_code
cloud_label_names compress_files concurrency_limits concurrency_limits_expr container_image container_is_common
container_service_names container_target_dir core_size coresize cron_day_of_month cron_day_of_week cron_hour
cron_minute cron_month cron_prep_time cron_window cuda_version dag_node_name dagman_job_id dagman_log
deferral_prep_time deferral_time deferral_window delegate_job_gsi_credentials_lifetime disk_usage docker_image
docker_network_type docker_override_entrypoint docker_pull_policy docker_send_credentials dont_encrypt_input_files
dont_encrypt_output_files ec2_access_key_id ec2_ami_id ec2_availability_zone ec2_block_device_mapping
ec2_ebs_volumes ec2_elastic_ip ec2_iam_profile_arn ec2_iam_profile_name ec2_instance_type ec2_key_pair_file
ec2_keypair ec2_keypair_file ec2_parameter_names ec2_secret_access_key ec2_security_groups ec2_security_ids
ec2_spot_price ec2_tag_names ec2_user_data ec2_user_data_file ec2_vpc_ip ec2_vpc_subnet email_attributes
encrypt_execute_directory encrypt_input_files encrypt_output_files env environment erase_output_and_error_on_restart
error executable fetch_files file_remaps gce_account gce_auth_file gce_image gce_json_file gce_machine_type
gce_metadata gce_metadata_file gce_preemptible getenv gpus_maximum_capability gpus_minimum_capability
gpus_minimum_memory gpus_minimum_runtime grid_resource gs_access_key_id_file gs_secret_access_key_file hold
hold_kill_sig image_size initial_dir initialdir input interactive_args interactive_executable jar_files java_vm_args
java_vm_arguments java_vm_arguments2 job_ad_information_attrs job_iwd job_lease_duration job_machine_attrs
job_max_vacate_time jobset keep_claim_idle kill_sig kill_sig_timeout leave_in_queue load_profile local_files log
log_xml machine_count manifest manifest_dir match_list_length materialize_max_idle max_job_retirement_time
max_materialize max_retries max_transfer_input_mb max_transfer_output_mb mount_under_scratch my_proxy_host
next_job_start_delay nice_user node_count noop_job noop_job_exit_code noop_job_exit_signal notification notify_user
on_evict_checks on_exit_hold on_exit_hold_reason on_exit_hold_subcode on_exit_remove output output_destination
output_directory parallel_script_shadow parallel_script_starter periodic_hold periodic_hold_reason
periodic_hold_subcode periodic_release periodic_remove periodic_vacate preserve_relative_paths primary_unix_group
prio priority project_name public_input_files rank remote_initialdir remove_kill_sig request_cpus request_disk
request_gpus request_memory request_virtualmemory require_gpus requirements retry_request_disk retry_request_memory
retry_request_memory_increase retry_request_memory_max retry_until rootdir run_as_owner s3_access_key_id_file
s3_secret_access_key_file scitokens_file shell should_transfer_files singularity_target_dir skip_filechecks
skip_if_dataflow stack_size starter_debug starter_log stream_error stream_input stream_output submit_event_notes
submit_event_notes_attrs submit_event_user_notes submit_fail_empty_matches submit_match_directories
submit_warn_duplicate_matches submit_warn_empty_matches success_exit_code suspend_job_at_exec tool_daemon_args
tool_daemon_arguments tool_daemon_arguments2 tool_daemon_cmd tool_daemon_error tool_daemon_input tool_daemon_output
transfer_checkpoint_files transfer_common_input transfer_container transfer_error transfer_executable transfer_input
transfer_input_files transfer_output transfer_output_files transfer_output_remaps transfer_plugins
ulog_execute_attrs universe use_oauth_services use_scitoken use_scitokens use_x509userproxy vm_checkpoint vm_disk
vm_macaddr vm_memory vm_networking vm_networking_type vm_no_output_vm vm_type vm_vcpus vm_vnc want_graceful_removal
want_io_proxy want_job_networking when_to_transfer_output x509userproxy x509userproxysubject xen_initrd xen_kernel
xen_kernel_params xen_root
"""
_AUTOMATIC = """
arch cluster clusterid dag_node_name dag_parent_names dag_status dagmanjobid day dollar failed_count full_hostname
hostname islinux iswindows item itemindex job joblistid month node opsys opsysandver opsysmajorver opsysver process
procid retry row spool step submit_file submit_time tilde username year
"""
SUBMIT_COMMANDS = frozenset(_COMMANDS.split())
SUBMIT_PREFIXES = ("ec2_parameter_", "ec2_tag_", "cloud_label_")
"""Commands whose end the user chooses."""
MISTAKEN = {
    "request_gpu_memory": "gpus_minimum_memory",
    "request_gpus_memory": "gpus_minimum_memory",
    "request_gpu": "request_gpus",
    "request_cpu": "request_cpus",
    "request_mem": "request_memory",
    "job_ad_file": "job_ad_information_attrs",
    "queue_name": "batch_queue",
    "walltime": "allowed_execute_duration",
    "requirement": "requirements",
}
"""What people write, and what they mean."""
AUTOMATIC_VARIABLES = frozenset(_AUTOMATIC.split())
"""Variables that condor_submit or DAGMan define by themselves, in small letters."""
