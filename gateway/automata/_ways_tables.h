/* Tables and sets of `_ways.c`. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ASCII 128
#define FIRST_SIZE 64     /* of a set; a power of two, as all sizes are */
#define MAX_WAYS 65536    /* more are for Python to follow */
#define SORTED_SIMPLY 64  /* so many at most */
#define STAGES 3          /* of a code: in the bits of a place, from the lowest on, 16 for each, and the chain above them */
#define BETWEEN 0x800080008000u /* bits of rows between two letters */
#define MAX_BITS 8        /* digits that count differently where a code of bits begins; and tables of such codes */
#define FIRST_DIGITS 64   /* rows of a code of bits: 0; behind the first digit; then with so many bits left over */
#define ESCAPED 0x4000    /* in such rows: behind a backslash */

enum { DIGIT = 63, NO_DIGIT, PADDING, PASSED = 128 }; /* what a symbol is to a code of bits */
enum { NO_STAGE, ASKED, UTF8, BITS };                 /* stages of a chain; BITS and more: by that table */
enum { FAILED = -1, GOES_ON, STOPS }; /* STOPS: a match is certain, or Python must say */
enum { SIGN = 1, MASKS = 2 }; /* what a character is besides letters */
/* As in word_places.py; the others are of places that only Python follows. */
enum {
    EDGED = 1, JOINED = 4, PLAIN = 8, SECOND_PLAIN = 16, DOUBLED = 32, UNEVEN = 64, EXACT = 128, BLANK = 512, MASKED = 1024,
};
enum { NO_LETTER, COMPLETE = 0xFFFFFFFF };

/* Where one way is, and the number of its beginning: the later the greater. */
typedef struct {
    uint64_t place;
    uint32_t spot, start;
} Way;

/* Ways, each once with the earliest of its beginnings; `slots` has their indices, from 1 on, by hash. */
typedef struct {
    Way *ways;
    uint32_t *slots, count, size;
} Set;

/* From 64 bits to 32; keys are kept increased by one, so that 0 is a free slot. */
typedef struct {
    uint64_t *keys;
    uint32_t *values, count, size;
} Map;

/* Numbers one behind the other. */
typedef struct {
    uint32_t *numbers;
    size_t count, size;
} Pool;

/* What a character is: its symbol, its kind, its bits, and the ways that begin with it in codes. */
typedef struct {
    uint64_t reads;
    uint32_t symbol, kind, begun, count;
    int stops;
} Char;
#define OF_UTF8 0x10000 /* in a symbol: the row is one of UTF-8 */
#define MAX_ROW 0xFFFF /* and letters */
#define OWN 0x800000 /* numbers of positions from here on are given here, below by Python */
#define MAX_POSITION 0xFFFFFF
#define LETTER_BITS 59 /* as in word_trie.py */
#define MAX_EDITS 3
#define MAX_FLAGS 0xFFF
#define MAX_NODES 0x3FFFFF
#define MAX_TRIES 32
#define KINDS 4 /* of characters, as in contexts.py */
#define ALL_RIGHTS 15
#define MOVES 32

/* A gateway.automata.encodings.BitEncoding. */
typedef struct {
    uint32_t width, count;
    unsigned char counts[MAX_BITS], signs[256];
} Bits;

/* What a symbol comes to: a letter, from 1 on, and the row behind it. */
typedef struct {
    uint32_t letter, row;
} Reading;

enum { FIRST, LENGTH, LIGHTEST, HEAVIEST, LONGEST, TO_END, GUARD, ARRAYS };
/* A gateway.automata.word_trie.WordTrie, with the edits that there may be and how long words must be; a position is in one, or in NO_TRIE where only Python follows it. */
typedef struct {
    PyObject *labels;
    const uint32_t *arrays[ARRAYS];
    Py_ssize_t count;
    unsigned int edits, shortest, owner, has;
    Py_buffer buffers[ARRAYS];
} Trie;
#define NO_TRIE 0xFF

/* What a position is in a trie, as `Place` has it. */
typedef struct {
    uint32_t trie, node, edits, flags, skip, swapped;
} Node;

/* Of a gateway.automata.pattern_states.Position what matters here; `passes` and `may_match` as there. */
typedef struct {
    uint64_t onward;
    uint32_t waits, owner;
    unsigned char known, arrives, may_match, passes;
    Node at;
} Position;

enum { CHAR, READ, LEAD, PLACE, QUESTIONS }; /* what Python is asked: see `_char` and so on there */

typedef struct {
    PyObject_HEAD
    PyObject *ask[QUESTIONS];
    unsigned char *stages; /* STAGES of each chain */
    Py_ssize_t chains;
    Bits bits[MAX_BITS];
    uint32_t ascii[ASCII]; /* indices of characters, from 1 on */
    Map others, reads, leads;
    Pool read; /* for each answer: how many pairs of a letter and a row */
    Char *chars;
    Way *begun;
    size_t char_count, begun_count;
    Position *positions; /* where there are no codes: `read` are those behind a position */
    uint32_t position_count, owners;
    Position *nodes; /* positions that Python need not know, by their numbers from OWN on */
    uint32_t node_count, node_size;
    Map places; /* numbers of positions, by what they are in a trie; 0: none */
    Trie *tries;
    uint32_t trie_count, shortest, ordinary; /* with a weight below these more is to be known of a word */
    PyObject *before, *moves[KINDS + 1][MOVES]; /* of leaps, which have them in common: see `move_of` */
} Tables;

/* -- tables -------------------------------------------------------------------------------------------------------- */

static uint32_t hashed(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15u;
    return (uint32_t)(key >> 32);
}

static int no_memory(void)
{
    PyErr_NoMemory();
    return FAILED;
}

/* The value of a key, or NULL. */
static const uint32_t *find(const Map *map, uint64_t key)
{
    if (map->size)
        for (uint32_t at = hashed(++key) & (map->size - 1); map->keys[at]; at = (at + 1) & (map->size - 1))
            if (map->keys[at] == key)
                return &map->values[at];
    return NULL;
}

static void fill(Map *map, uint64_t kept, uint32_t value)
{
    uint32_t at = hashed(kept) & (map->size - 1);
    while (map->keys[at] && map->keys[at] != kept)
        at = (at + 1) & (map->size - 1);
    map->count += !map->keys[at];
    map->keys[at] = kept;
    map->values[at] = value;
}

static int put(Map *map, uint64_t key, uint32_t value)
{
    if (2 * map->count >= map->size) {
        Map larger = {NULL, NULL, 0, map->size ? 2 * map->size : FIRST_SIZE};
        larger.keys = calloc(larger.size, sizeof(uint64_t));
        larger.values = calloc(larger.size, sizeof(uint32_t));
        if (larger.keys == NULL || larger.values == NULL) {
            free(larger.keys);
            free(larger.values);
            return no_memory();
        }
        for (uint32_t at = 0; at < map->size; at++)
            if (map->keys[at])
                fill(&larger, map->keys[at], map->values[at]);
        free(map->keys);
        free(map->values);
        *map = larger;
    }
    fill(map, key + 1, value);
    return 0;
}

static int append(Pool *pool, uint32_t number)
{
    if (pool->count == pool->size) {
        size_t size = pool->size ? 2 * pool->size : FIRST_SIZE;
        uint32_t *larger = size < UINT32_MAX ? realloc(pool->numbers, size * sizeof(uint32_t)) : NULL;
        if (larger == NULL)
            return no_memory();
        pool->numbers = larger;
        pool->size = size;
    }
    pool->numbers[pool->count++] = number;
    return 0;
}

/* An item of a tuple as a number; FAILED with an exception. */
static int number_of(PyObject *tuple, Py_ssize_t at, uint64_t *number)
{
    PyObject *item = PyTuple_GetItem(tuple, at);
    if (item == NULL)
        return FAILED;
    *number = PyLong_AsUnsignedLongLong(item);
    return *number == (uint64_t)-1 && PyErr_Occurred() ? FAILED : 0;
}

/* -- sets ---------------------------------------------------------------------------------------------------------- */

static int open_set(Set *set, uint32_t size)
{
    set->ways = malloc(size * sizeof(Way));
    set->slots = calloc(2 * size, sizeof(uint32_t));
    set->count = 0;
    set->size = size;
    return set->ways == NULL || set->slots == NULL ? no_memory() : 0;
}

static void close_set(Set *set)
{
    free(set->ways);
    free(set->slots);
}

static void empty(Set *set)
{
    set->count = 0;
    memset(set->slots, 0, 2 * set->size * sizeof(uint32_t));
}

static uint32_t *slot_of(const Set *set, uint64_t place, uint32_t spot)
{
    uint32_t mask = 2 * set->size - 1, at = hashed(place ^ (uint64_t)spot << 20 ^ place >> 29) & mask;
    while (set->slots[at] &&
           (set->ways[set->slots[at] - 1].place != place || set->ways[set->slots[at] - 1].spot != spot))
        at = (at + 1) & mask;
    return &set->slots[at];
}

static int add(Set *set, uint64_t place, uint32_t spot, uint32_t start)
{
    uint32_t *slot = slot_of(set, place, spot);
    if (*slot) {
        Way *known = &set->ways[*slot - 1];
        if (start < known->start)
            known->start = start;
        return GOES_ON;
    }
    if (set->count == set->size) {
        Set larger;
        if (set->size == MAX_WAYS)
            return STOPS;
        if (open_set(&larger, 2 * set->size) < 0) {
            close_set(&larger);
            return FAILED;
        }
        for (; larger.count < set->count; larger.count++) {
            Way way = larger.ways[larger.count] = set->ways[larger.count];
            *slot_of(&larger, way.place, way.spot) = larger.count + 1;
        }
        close_set(set);
        *set = larger;
        slot = slot_of(set, place, spot);
    }
    set->ways[set->count++] = (Way){place, spot, start};
    *slot = set->count;
    return GOES_ON;
}

static int compare(const void *one, const void *other)
{
    const Way *a = one, *b = other;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return a->spot == b->spot ? 0 : a->spot < b->spot ? -1 : 1;
}

static void sort(Set *set)
{
    Way *ways = set->ways;
    if (set->count > SORTED_SIMPLY) {
        qsort(ways, set->count, sizeof(Way), compare);
        return;
    }
    for (uint32_t at = 1; at < set->count; at++) {
        Way way = ways[at];
        uint32_t to = at;
        for (; to && compare(&ways[to - 1], &way) > 0; to--)
            ways[to] = ways[to - 1];
        ways[to] = way;
    }
}
