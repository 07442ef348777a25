/* Many jobs from one process: `submit_many COUNT KIND UID USERS`, KIND pending (held) or allocated. A thousand a second, where sbatch in
   a loop manages a hundred. The jobs belong to USERS uids in turn, from UID on, and differ in name, size, limit and partition. */
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	static char *environment[] = {"PATH=/usr/bin:/bin"};
	static char *gpus[] = {"gres:gpu:1", "gres:gpu:2", "gres:gpu:4", "gres:gpu:8"};
	int count = atoi(argv[1]), is_pending = !strcmp(argv[2], "pending"), num_refused = 0;
	int first_uid = atoi(argv[3]), num_users = atoi(argv[4]);

	slurm_init(NULL);
	for (int i = 0; i < count; i++) {
		job_desc_msg_t job;
		char name[64];
		int status;

		slurm_init_job_desc_msg(&job);
		snprintf(name, sizeof name, "train-llm-%s-%06d", argv[2], i);
		job.name = name;
		job.user_id = first_uid + i % num_users;
		job.group_id = job.user_id;
		job.partition = i % 7 ? "gpu" : "cpu";
		job.min_nodes = 1;
		job.cpus_per_task = 1 + i % 16;
		job.min_cpus = job.cpus_per_task;
		job.num_tasks = 1;
		job.time_limit = 60 * (1 + i % 48);
		job.tres_per_node = gpus[i % 4];
		job.work_dir = "/home/user/projects/experiment-with-a-long-path/runs";
		job.std_out = "/home/user/projects/experiment-with-a-long-path/runs/slurm-%j.out";
		if (is_pending) {
			submit_response_msg_t *answer = NULL;
			job.priority = 0;
			job.script = "#!/bin/sh\ntrue\n";
			job.environment = environment;
			job.env_size = 1;
			status = slurm_submit_batch_job(&job, &answer);
		} else {
			resource_allocation_response_msg_t *answer = NULL;
			status = slurm_allocate_resources(&job, &answer);
		}
		if (status && !num_refused++)
			slurm_perror("refused");
	}
	printf("%d of %d refused\n", num_refused, count);
	return num_refused != 0;
}
