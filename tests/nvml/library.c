/* A libnvidia-ml.so.1 with GPUs, the first one of two MIG instances, as far as nvml/child.py asks. What it does besides
   stands in the file $FAKE_NVML, which is read with every question: "hang", "crash", "init N", "xid N GI", "errors N",
   "rows", "gpus N" (one, if it does not say), "mig" (all are in MIG mode), "whole" (none is), "link A B" (one of NVLink
   from A to B, which is a GPU, or a switch from 8 on). Of a GPU that is lost "lost" or "reset" says so with its memory, "gone" as soon as it is asked for, "deaf" to who waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Result;
enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, GPU_IS_LOST = 15, RESET_REQUIRED = 16, DRIVER_NOT_LOADED = 9 };
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { char legacy[16]; unsigned domain, bus, device, pci, subsystem; char bus_id[32]; } Pci;
typedef struct { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;
typedef struct { void *device; unsigned id, profile, start, size; } InstanceInfo;

static char gpus[8], migs[3]; /* their addresses are the handles */
static int is_told;

static int is_gpu(char *handle) { return handle >= gpus && handle < gpus + 8; }

static int said(const char *word, int *first, int *second) {
    char line[128];
    int found = 0;
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    while (file && fgets(line, sizeof line, file)) {
        if (!strncmp(line, word, strlen(word))) {
            found = 1;
            *second = -1;
            sscanf(line + strlen(word), "%d %d", first, second);
        }
    }
    if (file) fclose(file);
    return found;
}

static void obey(void) {
    int a, b;
    while (said("hang", &a, &b)) usleep(10000);
    if (said("crash", &a, &b)) abort();
}

Result nvmlInitWithFlags(unsigned flags) {
    int code, other;
    obey();
    return said("init", &code, &other) ? code : SUCCESS;
}
const char *nvmlErrorString(Result code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "an error"; }
Result nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **handle) {
    int count = 1, other;
    unsigned bus;
    obey();
    said("gpus", &count, &other);
    if (sscanf(address, "00000000:%X:00.0", &bus) != 1 || bus < 0x81 || bus >= 0x81 + count) return NOT_FOUND;
    if (said("gone", &count, &other)) return GPU_IS_LOST;
    *handle = &gpus[bus - 0x81];
    return SUCCESS;
}
Result nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) {
    sprintf(pci->bus_id, "00000000:%X:00.0", 0x81 + (int)((char *)handle - gpus));
    return SUCCESS;
}
static Result link_of(void *handle, unsigned number, int *other) {
    char line[128];
    int from, found = 0;
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "link %d %d", &from, other) == 2 && handle == &gpus[from] && number-- == 0;
    if (file) fclose(file);
    return found ? SUCCESS : NOT_SUPPORTED;
}
Result nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active) {
    int other;
    *active = link_of(handle, link, &other) == SUCCESS;
    return link < 12 ? SUCCESS : NOT_SUPPORTED;
}
Result nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, int *type) {
    int other = 0;
    Result result = link_of(handle, link, &other);
    *type = other >= 8 ? 2 : 0;
    return result;
}
Result nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, Pci *pci) {
    int other = 0;
    Result result = link_of(handle, link, &other);
    sprintf(pci->bus_id, "00000000:%X:00.0", 0x81 + other);
    return result;
}
Result nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    if (handle == gpus) snprintf(text, length, "GPU-8a56a4bc");
    else if (is_gpu(handle)) snprintf(text, length, "GPU-%d", (int)((char *)handle - gpus));
    else snprintf(text, length, "MIG-%d", (int)((char *)handle - migs));
    return SUCCESS;
}
Result nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    snprintf(text, length, "NVIDIA A100-SXM4-80GB MIG %dg.10gb", (int)((char *)handle - migs));
    return SUCCESS;
}
Result nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    int a, b;
    if (said("lost", &a, &b)) return GPU_IS_LOST;
    if (said("reset", &a, &b)) return RESET_REQUIRED;
    memory->total = is_gpu(handle) ? 85899345920ULL : 10737418240ULL;
    return SUCCESS;
}
Result nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *count) {
    int number = 0, b;
    said("errors", &number, &b);
    *count = type == 1 && counter == 0 ? number : 99;
    return SUCCESS;
}
Result nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *not, unsigned *pending, unsigned *failed) {
    int a, b;
    *corrected = *not = *failed = 0;
    *pending = said("rows", &a, &b);
    return SUCCESS;
}
Result nvmlDeviceGetRetiredPagesPendingStatus(void *handle, int *pending) { return NOT_SUPPORTED; }
Result nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later) {
    int a, b;
    *now = *later = (handle == gpus || said("mig", &a, &b)) && !said("whole", &a, &b);
    return SUCCESS;
}
Result nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { *count = 7; return SUCCESS; }
Result nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **mig) {
    if (handle != gpus || (index != 1 && index != 2)) return NOT_FOUND;
    *mig = &migs[index];
    return SUCCESS;
}
Result nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) { *id = (char *)handle - migs; return SUCCESS; }
Result nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) { *id = 0; return SUCCESS; }
Result nvmlDeviceGetGpuInstanceById(void *handle, unsigned id, void **instance) { *instance = &migs[id]; return SUCCESS; }
Result nvmlGpuInstanceGetInfo(void *instance, InstanceInfo *info) {
    info->start = 4 * ((char *)instance - migs - 1);
    info->size = 2;
    return SUCCESS;
}
Result nvmlEventSetCreate(void **set) { *set = &is_told; return SUCCESS; }
Result nvmlDeviceGetSupportedEventTypes(void *handle, unsigned long long *types) { *types = 8; return SUCCESS; }
Result nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) { return types == 8 ? SUCCESS : 2; }
Result nvmlEventSetWait_v2(void *set, Event *event, unsigned milliseconds) {
    int number, instance, left;
    for (left = milliseconds; left > 0; left -= 5) {
        obey();
        if (said("deaf", &number, &instance)) return GPU_IS_LOST;
        if (!said("xid", &number, &instance)) is_told = 0;
        else if (is_told != number) {
            is_told = number;
            event->device = gpus;
            event->type = 8;
            event->data = number;
            event->gpu_instance = instance;
            event->compute_instance = instance < 0 ? -1 : 0;
            return SUCCESS;
        }
        usleep(5000);
    }
    return TIMEOUT;
}
