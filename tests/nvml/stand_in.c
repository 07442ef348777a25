/* A stand-in for NVIDIA's libnvidia-ml.so.1, driven by a text file, so that the real binding (nvidia-ml-py) can be tested without a GPU.

   $NVML_STAND_IN names the file. One GPU a line, as key=value words; it is read again before every call, so a test moves the telemetry
   by rewriting it. No file, or the single line `no-driver`: the driver is not loaded. Keys, with what they mean when absent:
     uuid name (underscores are shown as spaces) util used_mib total_mib power_mw limit_mw temp mem_temp sm max_sm mem max_mem
     reasons (hexadecimal) process=PID:MIB (may come several times) parent=N (a MIG instance of GPU N, not a device of its own)
     pcie=GENERATION:WIDTH:MAX_GENERATION:MAX_WIDTH pcie_kb=SENT:RECEIVED replays nvlinks=N:ACTIVE nvlink_kib=SENT:RECEIVED
     nvlink_errors=CRC_FLIT:CRC_DATA:REPLAY:RECOVERY ecc=VOLATILE_CORRECTED:VOLATILE_UNCORRECTED:AGGREGATE_CORRECTED:…_UNCORRECTED
     ecc_off=1 rows=CORRECTED:UNCORRECTED:PENDING:FAILED pages=SINGLE_BIT:DOUBLE_BIT:PENDING limits=SHUTDOWN:SLOWDOWN:MEMORY:GPU
     persistence compute_mode gpm=SM:OCCUPANCY:TENSOR:DRAM (percent; absent: no GPM) xid=NUMBER (an event whenever it changes)
     lost=1 (every call answers GPU_IS_LOST) fallen=1 (so does the question for its handle); unsupported=a,b denied=a,b (NO_PERMISSION) hang=a,b (no answer while it is listed), with the
     names util memory power limit temp mem_temp sm reasons processes pcie throughput nvlink ecc rows pages limits persistence compute_mode
     mig events gpm
   $NVML_STAND_IN_CUDA is the CUDA that the driver supports (12080: 12.8); without it, libcuda is not there to be asked. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9,
       TIMED_OUT = 10, LIBRARY_NOT_FOUND = 12, GPU_IS_LOST = 15 };
enum { MAX_GPUS = 64, MAX_PROCESSES = 16, CLOCK_SM = 1, CLOCK_MEMORY = 2 };

typedef unsigned long long number;
typedef struct { unsigned pid; number used; unsigned gpu_instance, compute_instance; } process;
typedef struct {
    int lost, fallen, ecc_off, parent, num_processes, has_gpm;
    unsigned util, power_mw, limit_mw, temp, mem_temp, sm, max_sm, mem, max_mem, replays, persistence, compute_mode, xid;
    unsigned pcie[4], pcie_kb[2], nvlinks[2], rows[4], limits[4];
    number used_mib, total_mib, reasons, nvlink_kib[2], nvlink_errors[4], ecc[4], pages[3], gpm[4];
    char uuid[96], name[96], unsupported[160], denied[160], hang[160];
    process processes[MAX_PROCESSES];
} gpu;

static gpu gpus[MAX_GPUS];
static int num_gpus, has_driver;
static struct timespec last_change;
static ino_t last_file;
static unsigned told_xid[MAX_GPUS];
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static void numbers(const char *text, void *to, int count, int is_long) {
    for (int i = 0; i < count && text; i++) {
        number value = strtoull(text, 0, 10);
        if (is_long) ((number *)to)[i] = value; else ((unsigned *)to)[i] = value;
        text = strchr(text, ':');
        if (text) text++;
    }
}

static void set(gpu *g, const char *key, const char *value) {
#define UNSIGNED(field) else if (!strcmp(key, #field)) g->field = strtoul(value, 0, 10)
#define LONG(field) else if (!strcmp(key, #field)) g->field = strtoull(value, 0, 10)
#define LISTED(field) else if (!strcmp(key, #field)) snprintf(g->field, sizeof g->field, ",%s,", value)
#define SHORT_ROW(field) else if (!strcmp(key, #field)) numbers(value, g->field, sizeof g->field / sizeof *g->field, 0)
#define LONG_ROW(field) else if (!strcmp(key, #field)) numbers(value, g->field, sizeof g->field / sizeof *g->field, 1)
    if (!strcmp(key, "uuid")) snprintf(g->uuid, sizeof g->uuid, "%s", value);
    else if (!strcmp(key, "name")) { snprintf(g->name, sizeof g->name, "%s", value); for (char *c = g->name; *c; c++) if (*c == '_') *c = ' '; }
    else if (!strcmp(key, "reasons")) g->reasons = strtoull(value, 0, 16);
    LISTED(unsupported); LISTED(denied); LISTED(hang);
    UNSIGNED(util); UNSIGNED(power_mw); UNSIGNED(limit_mw); UNSIGNED(temp); UNSIGNED(mem_temp); UNSIGNED(sm); UNSIGNED(max_sm);
    UNSIGNED(mem); UNSIGNED(max_mem); UNSIGNED(replays); UNSIGNED(persistence); UNSIGNED(compute_mode); UNSIGNED(xid); UNSIGNED(lost); UNSIGNED(fallen); UNSIGNED(ecc_off);
    UNSIGNED(parent); LONG(used_mib); LONG(total_mib);
    SHORT_ROW(pcie); SHORT_ROW(pcie_kb); SHORT_ROW(nvlinks); SHORT_ROW(rows); SHORT_ROW(limits);
    LONG_ROW(nvlink_kib); LONG_ROW(nvlink_errors); LONG_ROW(ecc); LONG_ROW(pages);
    else if (!strcmp(key, "gpm")) { g->has_gpm = 1; numbers(value, g->gpm, 4, 1); }
    else if (!strcmp(key, "process") && g->num_processes < MAX_PROCESSES) {
        process *p = &g->processes[g->num_processes++];
        number mib = 0;
        sscanf(value, "%u:%llu", &p->pid, &mib);
        p->used = mib << 20;
        p->gpu_instance = p->compute_instance = 0xffffffff;
    }
}

static void load_unlocked(void) {
    const char *path = getenv("NVML_STAND_IN");
    struct stat s;
    if (!path || stat(path, &s)) { has_driver = 0; num_gpus = 0; return; }
    if (s.st_ino == last_file && s.st_mtim.tv_sec == last_change.tv_sec && s.st_mtim.tv_nsec == last_change.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    static gpu found[MAX_GPUS];
    int count = 0, is_loaded = 1;
    char line[4096];
    memset(found, 0, sizeof found);
    while (count < MAX_GPUS && fgets(line, sizeof line, file)) {
        if (!strncmp(line, "no-driver", 9)) { is_loaded = 0; break; }
        gpu *g = &found[count];
        int words = 0;
        g->parent = -1;
        snprintf(g->name, sizeof g->name, "Stand-in H100 80GB");
        g->total_mib = 81559; g->power_mw = 70000; g->limit_mw = 700000; g->temp = 30; g->mem_temp = 40; g->sm = 345; g->max_sm = 1980;
        g->mem = 2619; g->max_mem = 2619; g->persistence = 1;
        numbers("5:16:5:16", g->pcie, 4, 0); numbers("18:18", g->nvlinks, 2, 0); numbers("92:89:95:87", g->limits, 4, 0);
        for (char *rest = line, *word; (word = strtok_r(rest, " \n", &rest));) {
            char *equals = strchr(word, '=');
            words++;
            if (equals) { *equals = 0; set(g, word, equals + 1); }
        }
        if (!*g->uuid) snprintf(g->uuid, sizeof g->uuid, "%s-stand-in-%04d", g->parent < 0 ? "GPU" : "MIG", count);
        count += words > 0;
    }
    fclose(file);
    memcpy(gpus, found, sizeof gpus);  /* one go: another thread may be reading */
    num_gpus = count; has_driver = is_loaded; last_change = s.st_mtim; last_file = s.st_ino;
}

static void load(void) {
    pthread_mutex_lock(&loading);
    load_unlocked();
    pthread_mutex_unlock(&loading);
}

static int is_in(const char *list, const char *what) {
    char key[32];
    snprintf(key, sizeof key, ",%s,", what);
    return strstr(list, key) != 0;
}

static int check(gpu *g, const char *what) {
    load();
    while (is_in(g->hang, what)) { usleep(20000); load(); }
    if (!has_driver) return DRIVER_NOT_LOADED;
    if (g->lost) return GPU_IS_LOST;
    if (is_in(g->denied, what)) return NO_PERMISSION;
    return is_in(g->unsupported, what) ? NOT_SUPPORTED : OK;
}

static gpu *device(int index) {
    for (int i = 0; i < num_gpus; i++) if (gpus[i].parent < 0 && index-- == 0) return &gpus[i];
    return 0;
}

static gpu *instance(gpu *whole, int index) {
    for (int i = 0; i < num_gpus; i++) if (gpus[i].parent >= 0 && device(gpus[i].parent) == whole && index-- == 0) return &gpus[i];
    return 0;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; load(); return has_driver ? OK : DRIVER_NOT_LOADED; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    switch (code) {
        case OK: return "Success";
        case NOT_SUPPORTED: return "Not Supported";
        case NO_PERMISSION: return "Insufficient Permissions";
        case NOT_FOUND: return "Not Found";
        case DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case TIMED_OUT: return "Timeout";
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
int nvmlDeviceGetCount_v2(unsigned *count) { load(); for (*count = 0; device(*count); ++*count) {} return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu **g) {
    load();
    *g = device(index);
    return !*g ? INVALID_ARGUMENT : (*g)->fallen ? GPU_IS_LOST : OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, gpu **g) {
    for (int i = 0; i < num_gpus; i++) if (!strcmp(gpus[i].uuid, uuid)) { *g = &gpus[i]; return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(gpu *g, unsigned *index) { for (*index = 0; device(*index) && device(*index) != g; ++*index) {} return OK; }
int nvmlDeviceGetName(gpu *g, char *text, unsigned size) { snprintf(text, size, "%s", g->name); return OK; }
int nvmlDeviceGetUUID(gpu *g, char *text, unsigned size) { snprintf(text, size, "%s", g->uuid); return OK; }
int nvmlDeviceGetUtilizationRates(gpu *g, unsigned *rates) {
    int code = g->parent >= 0 ? NOT_SUPPORTED : check(g, "util");  /* of a MIG instance, NVML does not know it */
    rates[0] = g->util; rates[1] = g->util / 2;
    return code;
}
int nvmlDeviceGetMemoryInfo(gpu *g, number *info) {
    int code = check(g, "memory");
    info[0] = g->total_mib << 20; info[1] = (g->total_mib - g->used_mib) << 20; info[2] = g->used_mib << 20;
    return code;
}
#define ANSWER(function, what, field) int function(gpu *g, unsigned *value) { int code = check(g, what); *value = g->field; return code; }
ANSWER(nvmlDeviceGetPowerUsage, "power", power_mw)
ANSWER(nvmlDeviceGetEnforcedPowerLimit, "limit", limit_mw)
ANSWER(nvmlDeviceGetPersistenceMode, "persistence", persistence)
ANSWER(nvmlDeviceGetComputeMode, "compute_mode", compute_mode)
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie", pcie[0])
ANSWER(nvmlDeviceGetCurrPcieLinkWidth, "pcie", pcie[1])
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie", pcie[2])
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, "pcie", pcie[3])
ANSWER(nvmlDeviceGetPcieReplayCounter, "pcie", replays)
int nvmlDeviceGetTemperature(gpu *g, int sensor, unsigned *value) { (void)sensor; int code = check(g, "temp"); *value = g->temp; return code; }
int nvmlDeviceGetTemperatureThreshold(gpu *g, unsigned which, unsigned *value) {
    if (which > 3) return INVALID_ARGUMENT;
    int code = check(g, "limits"); *value = g->limits[which]; return code;
}
int nvmlDeviceGetClockInfo(gpu *g, int clock, unsigned *value) {
    if (clock != CLOCK_SM && clock != CLOCK_MEMORY) return INVALID_ARGUMENT;
    int code = check(g, "sm"); *value = clock == CLOCK_SM ? g->sm : g->mem; return code;
}
int nvmlDeviceGetMaxClockInfo(gpu *g, int clock, unsigned *value) {
    if (clock != CLOCK_SM && clock != CLOCK_MEMORY) return INVALID_ARGUMENT;
    int code = check(g, "sm"); *value = clock == CLOCK_SM ? g->max_sm : g->max_mem; return code;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(gpu *g, number *mask) { int code = check(g, "reasons"); *mask = g->reasons; return code; }
int nvmlDeviceGetPcieThroughput(gpu *g, unsigned counter, unsigned *value) {
    if (counter > 1) return INVALID_ARGUMENT;
    int code = check(g, "throughput"); *value = g->pcie_kb[counter]; return code;
}
int nvmlDeviceGetNvLinkState(gpu *g, unsigned link, unsigned *is_active) {
    int code = check(g, "nvlink");
    *is_active = link < g->nvlinks[1];
    return code == OK && link >= g->nvlinks[0] ? INVALID_ARGUMENT : code;
}
int nvmlDeviceGetEccMode(gpu *g, unsigned *current, unsigned *pending) { int code = check(g, "ecc"); *current = *pending = !g->ecc_off; return code; }
int nvmlDeviceGetTotalEccErrors(gpu *g, unsigned type, unsigned counter, number *count) {
    if (type > 1 || counter > 1) return INVALID_ARGUMENT;
    int code = check(g, "ecc"); *count = g->ecc[2 * counter + type]; return code;
}
int nvmlDeviceGetRemappedRows(gpu *g, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    int code = check(g, "rows");
    *corrected = g->rows[0]; *uncorrected = g->rows[1]; *pending = g->rows[2]; *failed = g->rows[3];
    return code;
}
int nvmlDeviceGetMigMode(gpu *g, unsigned *current, unsigned *pending) {
    int code = check(g, "mig"); *current = *pending = instance(g, 0) != 0; return code;
}
int nvmlDeviceGetMaxMigDeviceCount(gpu *g, unsigned *count) { *count = 7; return check(g, "mig"); }
int nvmlDeviceGetMigDeviceHandleByIndex(gpu *g, unsigned index, gpu **found) { *found = instance(g, index); return *found ? OK : NOT_FOUND; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu *g, gpu **whole) { *whole = g->parent < 0 ? 0 : device(g->parent); return *whole ? OK : INVALID_ARGUMENT; }
int nvmlDeviceIsMigDeviceHandle(gpu *g, unsigned *is_mig) { *is_mig = g->parent >= 0; return OK; }
int nvmlDeviceGetGpuInstanceId(gpu *g, unsigned *id) { *id = (unsigned)(g - gpus); return g->parent < 0 ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetComputeRunningProcesses_v2(gpu *g, unsigned *count, process *found) {
    int code = check(g, "processes");
    if (code != OK) return code;
    unsigned size = *count;
    *count = g->num_processes;
    if (size < *count) return INSUFFICIENT_SIZE;
    if (*count) memcpy(found, g->processes, *count * sizeof *found);
    return OK;
}
#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(gpu *g, unsigned *count, process *found) { return nvmlDeviceGetComputeRunningProcesses_v2(g, count, found); }
int nvmlDeviceGetCurrentClocksEventReasons(gpu *g, number *mask) { return nvmlDeviceGetCurrentClocksThrottleReasons(g, mask); }
#endif

typedef struct { unsigned field, scope; long long time, latency; int type, code; union { unsigned small; number large; } value; } field;
int nvmlDeviceGetFieldValues(gpu *g, int count, field *fields) {
    for (int i = 0; i < count; i++) {
        field *f = &fields[i];
        const char *what = 0;
        f->type = 3;
        f->value.large = 0;
        switch (f->field) {
            case 82: what = "mem_temp"; f->type = 1; f->value.small = g->mem_temp; break;
            case 29: case 30: case 31: what = "pages"; f->value.large = g->pages[f->field - 29]; break;
            case 38: case 45: case 52: case 59: what = "nvlink"; f->value.large = g->nvlink_errors[(f->field - 38) / 7]; break;
            case 138: case 139: what = "nvlink"; f->value.large = g->nvlink_kib[f->field - 138]; break;
        }
        f->code = what ? check(g, what) : NOT_SUPPORTED;
        if (f->code == GPU_IS_LOST) return GPU_IS_LOST;
    }
    return OK;
}

typedef struct { gpu *device; number type, data; unsigned gpu_instance, compute_instance; } event;
int nvmlEventSetCreate(void **set) { static int one; *set = &one; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(gpu *g, number types, void *set) { (void)types; (void)set; return check(g, "events"); }
int nvmlEventSetWait_v2(void *set, event *e, unsigned timeout_ms) {
    (void)set;
    for (unsigned waited = 0; waited <= timeout_ms; waited += 100, usleep(100000)) {
        load();
        for (int i = 0; i < num_gpus; i++) {
            if (gpus[i].xid == told_xid[i]) continue;
            told_xid[i] = gpus[i].xid;
            memset(e, 0, sizeof *e);
            e->device = &gpus[i]; e->type = 8; e->data = gpus[i].xid; e->gpu_instance = e->compute_instance = 0xffffffff;
            return OK;
        }
    }
    return TIMED_OUT;
}

typedef struct { gpu *of; } sample;
typedef struct { unsigned id; int code; double value; const char *names[3]; } metric;
typedef struct { unsigned version, count; sample *first, *second; metric metrics[]; } metrics;
int nvmlGpmQueryDeviceSupport(gpu *g, unsigned *support) { int code = check(g, "gpm"); support[1] = g->has_gpm; return code; }
int nvmlGpmSampleAlloc(sample **s) { *s = calloc(1, sizeof **s); return OK; }
int nvmlGpmSampleFree(sample *s) { free(s); return OK; }
int nvmlGpmSampleGet(gpu *g, sample *s) { s->of = g; return check(g, "gpm"); }
int nvmlGpmMigSampleGet(gpu *g, unsigned id, sample *s) { (void)g; s->of = &gpus[id]; return check(s->of, "gpm"); }
int nvmlGpmMetricsGet(metrics *asked) {
    if (!asked->first->of || asked->first->of != asked->second->of) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < asked->count; i++) {
        metric *m = &asked->metrics[i];
        int place = m->id == 2 ? 0 : m->id == 3 ? 1 : m->id == 5 ? 2 : m->id == 10 ? 3 : -1;
        m->code = place < 0 ? NOT_SUPPORTED : OK;
        m->value = place < 0 ? 0 : asked->second->of->gpm[place];
    }
    return OK;
}

/* What coach does not ask, and the programs that it is measured beside do. */
typedef struct { char legacy_bus_id[16]; unsigned domain, bus, device, ids[2]; char bus_id[32]; } pci;
int nvmlDeviceGetPciInfo_v3(gpu *g, pci *info) {
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)(g - gpus) + 1;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return OK;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(gpu *g, unsigned *count, process *found) { (void)found; *count = 0; return check(g, "processes"); }
int nvmlDeviceGetEncoderUtilization(gpu *g, unsigned *value, unsigned *period) { *value = *period = 0; return check(g, "util"); }
int nvmlDeviceGetDecoderUtilization(gpu *g, unsigned *value, unsigned *period) { *value = *period = 0; return check(g, "util"); }
int nvmlDeviceGetFanSpeed(gpu *g, unsigned *value) { (void)g; *value = 0; return NOT_SUPPORTED; }
int nvmlDeviceGetDisplayActive(gpu *g, unsigned *value) { (void)g; *value = 0; return OK; }
int nvmlDeviceGetDisplayMode(gpu *g, unsigned *value) { (void)g; *value = 0; return OK; }
int nvmlDeviceGetPerformanceState(gpu *g, unsigned *value) { *value = 0; return check(g, "sm"); }
int nvmlDeviceGetCudaComputeCapability(gpu *g, int *major, int *minor) { (void)g; *major = 9; *minor = 0; return OK; }
int nvmlDeviceGetDriverModel_v2(gpu *g, unsigned *current, unsigned *pending) { (void)g; *current = *pending = 0; return NOT_SUPPORTED; }
int nvmlDeviceGetProcessUtilization(gpu *g, void *samples, unsigned *count, number since) { (void)samples; (void)since; *count = 0; return g->lost ? GPU_IS_LOST : NOT_FOUND; }
ANSWER(nvmlDeviceGetPowerManagementLimit, "limit", limit_mw)
