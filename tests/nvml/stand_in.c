/* A stand-in for NVIDIA's libnvidia-ml.so.1, driven by a text file, so that the real binding (nvidia-ml-py) can be tested without a GPU.

   $NVML_STAND_IN names the file. One GPU a line, as key=value words; it is read again before every call, so a test moves the telemetry
   by rewriting it. No file, or the single line `no-driver`: the driver is not loaded. Keys, with what they mean when absent:
     uuid name (underscores are shown as spaces) util used_mib total_mib power_mw limit_mw temp sm max_sm reasons (hexadecimal)
     lost=1 (every call answers GPU_IS_LOST) unsupported=a,b (util memory power limit temp sm reasons processes) process=PID:MIB
   $NVML_STAND_IN_CUDA is the CUDA that the driver supports (12080: 12.8); without it, libcuda is not there to be asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, LIBRARY_NOT_FOUND = 12, GPU_IS_LOST = 15 };
enum { MAX_GPUS = 64, MAX_PROCESSES = 16, CLOCK_SM = 1 };

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
typedef struct {
    int lost, num_processes;
    unsigned util, power_mw, limit_mw, temp, sm, max_sm;
    unsigned long long used_mib, total_mib, reasons;
    char uuid[96], name[96], unsupported[128];
    process processes[MAX_PROCESSES];
} gpu;

static gpu gpus[MAX_GPUS];
static int num_gpus, has_driver;
static struct timespec last_change;
static ino_t last_file;

static void set(gpu *g, const char *key, const char *value) {
    if (!strcmp(key, "uuid")) snprintf(g->uuid, sizeof g->uuid, "%s", value);
    else if (!strcmp(key, "name")) { snprintf(g->name, sizeof g->name, "%s", value); for (char *c = g->name; *c; c++) if (*c == '_') *c = ' '; }
    else if (!strcmp(key, "unsupported")) snprintf(g->unsupported, sizeof g->unsupported, ",%s,", value);
    else if (!strcmp(key, "util")) g->util = atoi(value);
    else if (!strcmp(key, "used_mib")) g->used_mib = strtoull(value, 0, 10);
    else if (!strcmp(key, "total_mib")) g->total_mib = strtoull(value, 0, 10);
    else if (!strcmp(key, "power_mw")) g->power_mw = atoi(value);
    else if (!strcmp(key, "limit_mw")) g->limit_mw = atoi(value);
    else if (!strcmp(key, "temp")) g->temp = atoi(value);
    else if (!strcmp(key, "sm")) g->sm = atoi(value);
    else if (!strcmp(key, "max_sm")) g->max_sm = atoi(value);
    else if (!strcmp(key, "reasons")) g->reasons = strtoull(value, 0, 16);
    else if (!strcmp(key, "lost")) g->lost = atoi(value);
    else if (!strcmp(key, "process") && g->num_processes < MAX_PROCESSES) {
        process *p = &g->processes[g->num_processes++];
        unsigned long long mib = 0;
        sscanf(value, "%u:%llu", &p->pid, &mib);
        p->used = mib << 20;
        p->gpu_instance = p->compute_instance = 0xffffffff;
    }
}

static void load(void) {
    const char *path = getenv("NVML_STAND_IN");
    struct stat s;
    if (!path || stat(path, &s)) { has_driver = 0; num_gpus = 0; return; }
    if (s.st_ino == last_file && s.st_mtim.tv_sec == last_change.tv_sec && s.st_mtim.tv_nsec == last_change.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    last_change = s.st_mtim;
    last_file = s.st_ino;
    has_driver = 1;
    num_gpus = 0;
    char line[2048];
    while (num_gpus < MAX_GPUS && fgets(line, sizeof line, file)) {
        if (!strncmp(line, "no-driver", 9)) { has_driver = 0; break; }
        gpu *g = &gpus[num_gpus];
        memset(g, 0, sizeof *g);
        snprintf(g->uuid, sizeof g->uuid, "GPU-stand-in-%04d", num_gpus);
        snprintf(g->name, sizeof g->name, "Stand-in H100 80GB");
        g->total_mib = 81559; g->power_mw = 70000; g->limit_mw = 700000; g->temp = 30; g->sm = 345; g->max_sm = 1980;
        int words = 0;
        for (char *rest = line, *word; (word = strtok_r(rest, " \n", &rest));) {
            char *equals = strchr(word, '=');
            words++;
            if (equals) { *equals = 0; set(g, word, equals + 1); }
        }
        num_gpus += words > 0;
    }
    fclose(file);
}

static int check(gpu *g, const char *what) {
    char key[32];
    load();
    if (!has_driver) return DRIVER_NOT_LOADED;
    if (g->lost) return GPU_IS_LOST;
    snprintf(key, sizeof key, ",%s,", what);
    return strstr(g->unsupported, key) ? NOT_SUPPORTED : OK;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; load(); return has_driver ? OK : DRIVER_NOT_LOADED; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    switch (code) {
        case OK: return "Success";
        case NOT_SUPPORTED: return "Not Supported";
        case NOT_FOUND: return "Not Found";
        case DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case GPU_IS_LOST: return "GPU is lost";
        default: return "Invalid Argument";
    }
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    const char *cuda = getenv("NVML_STAND_IN_CUDA");
    *version = cuda ? atoi(cuda) : 0;
    return cuda ? OK : LIBRARY_NOT_FOUND;
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "999.99"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { load(); *count = num_gpus; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu **g) { if ((int)index >= num_gpus) return INVALID_ARGUMENT; *g = &gpus[index]; return OK; }
int nvmlDeviceGetHandleByUUID(const char *uuid, gpu **g) {
    for (int i = 0; i < num_gpus; i++) if (!strcmp(gpus[i].uuid, uuid)) { *g = &gpus[i]; return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(gpu *g, unsigned *index) { *index = (unsigned)(g - gpus); return OK; }
int nvmlDeviceGetName(gpu *g, char *text, unsigned size) { snprintf(text, size, "%s", g->name); return OK; }
int nvmlDeviceGetUUID(gpu *g, char *text, unsigned size) { snprintf(text, size, "%s", g->uuid); return OK; }
int nvmlDeviceGetUtilizationRates(gpu *g, unsigned *rates) { int code = check(g, "util"); rates[0] = g->util; rates[1] = g->util / 2; return code; }
int nvmlDeviceGetMemoryInfo(gpu *g, unsigned long long *info) {
    int code = check(g, "memory");
    info[0] = g->total_mib << 20; info[1] = (g->total_mib - g->used_mib) << 20; info[2] = g->used_mib << 20;
    return code;
}
int nvmlDeviceGetTemperature(gpu *g, int sensor, unsigned *value) { (void)sensor; int code = check(g, "temp"); *value = g->temp; return code; }
int nvmlDeviceGetPowerUsage(gpu *g, unsigned *value) { int code = check(g, "power"); *value = g->power_mw; return code; }
int nvmlDeviceGetEnforcedPowerLimit(gpu *g, unsigned *value) { int code = check(g, "limit"); *value = g->limit_mw; return code; }
int nvmlDeviceGetClockInfo(gpu *g, int clock, unsigned *value) { if (clock != CLOCK_SM) return INVALID_ARGUMENT; int code = check(g, "sm"); *value = g->sm; return code; }
int nvmlDeviceGetMaxClockInfo(gpu *g, int clock, unsigned *value) { if (clock != CLOCK_SM) return INVALID_ARGUMENT; int code = check(g, "sm"); *value = g->max_sm; return code; }
int nvmlDeviceGetCurrentClocksEventReasons(gpu *g, unsigned long long *mask) { int code = check(g, "reasons"); *mask = g->reasons; return code; }
int nvmlDeviceGetCurrentClocksThrottleReasons(gpu *g, unsigned long long *mask) { return nvmlDeviceGetCurrentClocksEventReasons(g, mask); }
int nvmlDeviceGetComputeRunningProcesses_v3(gpu *g, unsigned *count, process *found) {
    int code = check(g, "processes");
    if (code != OK) return code;
    unsigned size = *count;
    *count = g->num_processes;
    if (size < *count) return INSUFFICIENT_SIZE;
    if (*count) memcpy(found, g->processes, *count * sizeof *found);
    return OK;
}
