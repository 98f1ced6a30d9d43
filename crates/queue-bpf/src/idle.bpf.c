// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// How long each core's idle periods are.
//
// Two programs, of which a loader attaches one:
//
// - cpu_idle, on the raw tracepoint of the same name (power:cpu_idle): a core entered an idle state, or left it. An
//   interrupt that the idle task handles ends a period here, as it does for the hardware.
// - sched_switch: a core switched to its idle task, or from it. Interrupts that wake no task do not end a period.
//
// Each writes into its core's own record and takes no lock. A record's first word is written after everything else and
// its last word before: a reader that copies it in ascending order has a whole one where the two are equal.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define KERNEL_TYPE __attribute__((preserve_access_index))
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* include/uapi/linux/bpf.h */
enum { MAP_TYPE_ARRAY = 2, MAP_TYPE_PERCPU_ARRAY = 6 };
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;

struct task_struct {
	int pid;
} KERNEL_TYPE;

/* Lengths by the power of two in nanoseconds and the two bits after it, from 2^10 to 2^34 ns (17 s); the first class has
 * what is shorter, the last what is longer. */
enum { FIRST_POWER = 10, LAST_POWER = 34, CLASSES = (LAST_POWER - FIRST_POWER) * 4 + 2 };
enum { THRESHOLDS = 4, CROSSINGS = 2 };

/* Set by the loader, nanoseconds: time in periods longer than these is added up. Unused ones have the largest number. */
volatile const u64 thresholds[THRESHOLDS] = {};

/* All u64: the reader takes it as an array. Times in nanoseconds of CLOCK_MONOTONIC. */
struct record {
	/* Writes that are complete. */
	u64 written;
	/* Of the first event. */
	u64 first;
	/* Of the period that is running, or 0; and the epoch in which it began. */
	u64 began;
	u64 epoch;
	/* The last periods that ended in another epoch than they began in: beginning and length, and how many there were. */
	u64 crossed;
	u64 crossing[CROSSINGS][2];
	u64 longer[THRESHOLDS];
	u64 periods[CLASSES];
	u64 time[CLASSES];
	/* Writes that began. */
	u64 writing;
};

struct {
	int (*type)[MAP_TYPE_PERCPU_ARRAY];
	int (*max_entries)[1];
	u32 *key;
	struct record *value;
} records SEC(".maps");

/* Advanced by the reader before each reading, so that it learns how long the periods were that were running then. */
struct {
	int (*type)[MAP_TYPE_ARRAY];
	int (*max_entries)[1];
	u32 *key;
	u64 *value;
} epochs SEC(".maps");

/* Keeps the compiler, not the processor, from moving a store: the copy runs on another core, and a torn record is read
 * again. */
#define BARRIER() __asm__ volatile("" ::: "memory")

ALWAYS_INLINE u64 class_of(u64 length)
{
	u64 power = 0, rest = length, at;

	if (length < (1ULL << FIRST_POWER))
		return 0;
	if (length >= (1ULL << LAST_POWER))
		return CLASSES - 1;
	if (rest >= 1ULL << 32) {
		rest >>= 32;
		power += 32;
	}
	if (rest >= 1 << 16) {
		rest >>= 16;
		power += 16;
	}
	if (rest >= 1 << 8) {
		rest >>= 8;
		power += 8;
	}
	if (rest >= 1 << 4) {
		rest >>= 4;
		power += 4;
	}
	if (rest >= 1 << 2) {
		rest >>= 2;
		power += 2;
	}
	if (rest >= 1 << 1)
		power += 1;
	at = 1 + (power - FIRST_POWER) * 4 + ((length >> (power - 2)) & 3);
	return at;
}

ALWAYS_INLINE int event(int begins)
{
	u32 zero = 0;
	struct record *record = bpf_map_lookup_elem(&records, &zero);
	u64 *epoch = bpf_map_lookup_elem(&epochs, &zero);
	u64 now, length, class, crossing;

	if (!record || !epoch)
		return 0;
	/* A core that goes from one idle state to another has been idle all the time. */
	if (begins && record->began)
		return 0;
	now = bpf_ktime_get_ns();
	record->writing += 1;
	BARRIER();
	if (!record->first)
		record->first = now;
	if (begins) {
		record->began = now;
		record->epoch = *epoch;
	} else if (record->began) {
		length = now - record->began;
		class = class_of(length);
		/* The verifier does not follow the arithmetic. */
		if (class < CLASSES) {
			record->periods[class] += 1;
			record->time[class] += length;
		}
#pragma unroll
		for (int at = 0; at < THRESHOLDS; at++)
			if (length > thresholds[at])
				record->longer[at] += length;
		if (record->epoch != *epoch) {
			crossing = record->crossed & (CROSSINGS - 1);
			record->crossing[crossing][0] = record->began;
			record->crossing[crossing][1] = length;
			record->crossed += 1;
		}
		record->began = 0;
	}
	BARRIER();
	record->written += 1;
	return 0;
}

/* TP_PROTO(unsigned int state, unsigned int cpu_id): the state is PWR_EVENT_EXIT, -1, where it is left. */
SEC("raw_tp/cpu_idle")
int cpu_idle(u64 *context)
{
	return event((u32)context[0] != (u32)-1);
}

/* TP_PROTO(bool preempt, struct task_struct *prev, struct task_struct *next, ...); prev is still the current task. The idle
 * task has the number 0. */
SEC("raw_tp/sched_switch")
int sched_switch(u64 *context)
{
	struct task_struct *next = (struct task_struct *)context[2];
	int pid = -1;

	if ((u32)bpf_get_current_pid_tgid() == 0)
		return event(0);
	bpf_probe_read_kernel(&pid, sizeof(pid), &next->pid);
	return pid == 0 ? event(1) : 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
