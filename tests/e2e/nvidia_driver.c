/* A made-up libnvidia-ml.so.1 of a node with one GPU, and a libnvidia-sandboxutils.so.1 that refuses every call:
   both have the functions that nvidia-ctk 1.20 calls. VERSION is the driver's. */
#include <string.h>

typedef int Result;
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char address[32];
};
static char gpu;
enum { NOT_SUPPORTED = 3 };

static Result text(char *to, unsigned room, const char *what) { return strncpy(to, what, room), 0; }
static Result number(unsigned *to, unsigned what) { return *to = what, 0; }

Result nvmlInit(void) { return 0; }
Result nvmlInit_v2(void) { return 0; }
Result nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code ? "an error" : "none"; }
Result nvmlSystemGetDriverVersion(char *to, unsigned room) { return text(to, room, VERSION); }
Result nvmlSystemGetCudaDriverVersion_v2(unsigned *to) { return number(to, 12080); }
Result nvmlDeviceGetCount_v2(unsigned *to) { return number(to, 1); }
Result nvmlDeviceGetHandleByIndex_v2(unsigned index, void **to) { return *to = &gpu, 0; }
Result nvmlDeviceGetHandleByUUID(const char *uuid, void **to) { return *to = &gpu, 0; }
Result nvmlDeviceGetName(void *of, char *to, unsigned room) { return text(to, room, "NVIDIA A100"); }
Result nvmlDeviceGetUUID(void *of, char *to, unsigned room) {
    return text(to, room, "GPU-8a56a4bc-0000-0000-0000-000000000001");
}
Result nvmlDeviceGetMinorNumber(void *of, unsigned *to) { return number(to, 0); }
Result nvmlDeviceGetIndex(void *of, unsigned *to) { return number(to, 0); }
Result nvmlDeviceGetBrand(void *of, unsigned *to) { return number(to, 14); }
Result nvmlDeviceGetArchitecture(void *of, unsigned *to) { return number(to, 7); }
Result nvmlDeviceGetCudaComputeCapability(void *of, unsigned *major, unsigned *minor) {
    return number(major, 8) + number(minor, 0);
}
Result nvmlDeviceGetMigMode(void *of, unsigned *now, unsigned *later) { return NOT_SUPPORTED; }
Result nvmlDeviceGetMaxMigDeviceCount(void *of, unsigned *to) { return number(to, 0); }
Result nvmlDeviceIsMigDeviceHandle(void *of, unsigned *to) { return number(to, 0); }
Result nvmlDeviceGetAddressingMode(void *of, void *to) { return NOT_SUPPORTED; }
Result nvmlDeviceGetPciInfo_v3(void *of, struct pci *to) {
    memset(to, 0, sizeof *to);
    to->bus = 0x81, to->id = 0x20b510de;
    return text(to->legacy, sizeof to->legacy, "0000:81:00.0") + text(to->address, sizeof to->address, "00000000:81:00.0");
}

Result nvSandboxUtilsInit(void *input) { return NOT_SUPPORTED; }
Result nvSandboxUtilsShutdown(void) { return 0; }
const char *nvSandboxUtilsErrorString(int code) { return "not supported"; }
