/* A plug-in of qemu-user that counts the instructions of a process and prints their number to standard error when it ends,
 * as "instructions: ALL floating: SCALAR-FLOATING-POINT". The second is for 32-bit ARM, where a Cortex-A8 does such
 * instructions one at a time: those that compute on an s register, or on doubles in d registers.
 *
 * Built by run.py with -DAPI=N, the version of the plug-in interface of the qemu at hand. What it needs of qemu-plugin.h is
 * declared here, since Debian does not package that header: the functions below are the same in versions 1 to 4.
 * Source: QEMU's documentation, "QEMU TCG Plugins".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct qemu_info_t qemu_info_t;
typedef void (*on_block)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*on_execution)(unsigned int vcpu, void *block);
typedef void (*on_end)(qemu_plugin_id_t id, void *unused);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, on_block with);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, on_execution with, int flags, void *block);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, on_end with, void *unused);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t at);
char *qemu_plugin_insn_disas(const struct qemu_plugin_insn *insn);

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int qemu_plugin_version = API;

/* What a run of instructions without a jump adds. */
struct block {
    uint64_t instructions;
    uint64_t floating;
};

static uint64_t instructions, floating;
static int classify;

/* Tells whether the text of an instruction is that of scalar floating point: "vmul.f32 s0, s1, s2", "vadd.f64 d0, d1, d2",
 * and not "vmul.f32 q0, q1, q2" or "vmul.f32 d0, d1, d2", which NEON does, nor a load, store or move. */
static int is_floating(const char *text)
{
    const char *type;
    const char *operand;
    if (text == NULL || text[0] != 'v' || strncmp(text, "vmov", 4) == 0 || strncmp(text, "vldr", 4) == 0 ||
        strncmp(text, "vstr", 4) == 0 || strncmp(text, "vld", 3) == 0 || strncmp(text, "vst", 3) == 0) {
        return 0;
    }
    if (strstr(text, ".f64") != NULL) {
        return 1;
    }
    type = strstr(text, ".f32");
    operand = type == NULL ? NULL : strpbrk(type, " \t");
    return operand != NULL && strpbrk(operand, "sdq") != NULL && *strpbrk(operand, "sdq") == 's';
}

static void execute(unsigned int vcpu, void *data)
{
    const struct block *block = data;
    (void)vcpu;
    instructions += block->instructions;
    floating += block->floating;
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    /* Kept as long as the process: qemu does not say when a block is forgotten. */
    struct block *block = calloc(1, sizeof *block);
    size_t at;
    (void)id;
    if (block == NULL) {
        abort();
    }
    block->instructions = qemu_plugin_tb_n_insns(tb);
    for (at = 0; classify && at < block->instructions; at++) {
        char *text = qemu_plugin_insn_disas(qemu_plugin_tb_get_insn(tb, at));
        block->floating += is_floating(text);
        free(text);
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, execute, 0, block);
}

static void finish(qemu_plugin_id_t id, void *unused)
{
    (void)id;
    (void)unused;
    fprintf(stderr, "instructions: %" PRIu64 " floating: %" PRIu64 "\n", instructions, floating);
}

PUBLIC int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    classify = argc > 0 && strncmp(argv[0], "floating=on", 11) == 0;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_atexit_cb(id, finish, NULL);
    return 0;
}
