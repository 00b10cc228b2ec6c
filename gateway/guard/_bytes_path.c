/* `BytesPath` of gateway/guard/bytes_path.py, to the letter: that one says what is right, and the same tests run for
   both. An event for which this way is not taken leaves no trace. `ReadPath` is HTTP's framing around it, from a read of
   the upstream's socket to the write to the client's; the way through gateway/http1 and `HotPath` says what is right.

   What changes with each event is read into the path once, and written back by `write_back`, which is called before
   anything else looks at it: reading and writing attributes is a large part of what an event costs.

   Only the stable ABI is used. Every object that is read is checked for its type where Python code could have put
   another there; every index is checked against the length it belongs to. */

#include "../attributes.h"
#include <string.h>

static struct {
    Attribute ahead, base, disconnected, folded, held, held_since, left, live, machine, now, number, scanned, state, total,
        usage, write_paused, written;
    PyObject *scan_quickly;
} names;

#include "_event_template.h"
#include "_histogram.h"

#define MAX_NUMBER 20 /* digits of the number of an event that is sent */
static const char LINE[] = "data: ", EVENT_END[] = "\n\n";
#define LINE_SIZE 6
#define EVENT_END_SIZE 2

/* What a path refers to. */
enum {
    AROUND, KINDS, SHOWN, ORDER, BARE, BARE_ORDER, BEFORE, /* of the template; BEFORE is its `line` */
    GUARD, TEXT, COUNTS, SCANNER, CURSOR, RELEASER, /* parameters of its constructor, in their order, behind the template;
                                                       CURSOR is None where the scanner has several */
    OVER_WORDS,                                     /* of gateway.censor.scanner */
    DECODE, ENCODE, ESCAPE,                         /* what reads and writes a content that is not plain */
    HELD, HOLD,                                     /* histograms */
    TALLY, KEEP, PLACE,                             /* of the record; NULL where there is none */
    SENT, REST,                                     /* not parameters */
    REFERENCES
};

/* What changes with each event; references that are NULL while it has not been read. */
typedef struct {
    PyObject *state;           /* of the cursor, if that is the only one */
    PyObject *held;            /* of the releaser */
    PyObject *since;           /* `held_since` of the text */
    PyObject *now;             /* of the last read */
    Py_ssize_t stepped, cut;   /* characters that the cursor stepped over, and that came out, since it was read */
    Py_ssize_t left, number;   /* of the tally */
} State;

typedef struct {
    PyObject_HEAD
    PyObject *at[REFERENCES];
    Form event, shown, bare;
    Part before;
    Histogram held, hold;
    State state;
    Py_ssize_t piece, limit, content, prompt, answer; /* the last three are places; prompt is -1 where nothing is counted */
    int empties, numbered, ready;
} Path;

#define CALL(function, argument) PyObject_CallFunctionObjArgs(self->at[function], argument, NULL)

/* -- what changes with each event ---------------------------------------------------------------------------------- */

static void forget(State *state)
{
    Py_CLEAR(state->state);
    Py_CLEAR(state->held);
    Py_CLEAR(state->since);
    Py_CLEAR(state->now);
}

/* Reads it, if that has not been done, for a read at `now`; -1 with an exception. */
static int read_state(Path *self, PyObject *now)
{
    State *state = &self->state;
    if (state->now == NULL) {
        const int alone = self->at[CURSOR] != Py_None;
        *state = (State){0};
        if ((alone && (state->state = get(self->at[CURSOR], &names.state)) == NULL) ||
            (state->held = get(self->at[RELEASER], &names.held)) == NULL || PyUnicode_GetLength(state->held) < 0 ||
            (state->since = get(self->at[TEXT], &names.held_since)) == NULL ||
            read_total(&self->held) < 0 || read_total(&self->hold) < 0)
            goto failed;
        if (self->at[TALLY] != NULL) {
            state->left = get_number(self->at[TALLY], &names.left);
            state->number = PyErr_Occurred() ? -1 : get_number(self->at[TALLY], &names.number);
            if (PyErr_Occurred())
                goto failed;
        }
    }
    REPLACE(state->now, Py_NewRef(now));
    return 0;
failed:
    forget(state);
    return -1;
}

/* Writes it where it was read, if it was; -1 with an exception. */
static int write_state(Path *self)
{
    State state = self->state; /* whose references are taken */
    int done = 0;
    if (state.now == NULL)
        return 0;
    self->state = (State){0};
    if (state.state != NULL && (set(self->at[CURSOR], &names.state, state.state) < 0 ||
                                add_to(self->at[CURSOR], &names.folded, state.stepped) < 0 ||
                                add_to(self->at[SCANNER], &names.scanned, state.stepped) < 0))
        done = -1;
    else if (set(self->at[RELEASER], &names.held, state.held) < 0 ||
             add_to(self->at[RELEASER], &names.base, state.cut) < 0 ||
             add_to(self->at[TEXT], &names.written, state.cut) < 0 ||
             set(self->at[TEXT], &names.held_since, state.since) < 0 || set(self->at[COUNTS], &names.now, state.now) < 0 ||
             write_histogram(&self->held) < 0 || write_histogram(&self->hold) < 0)
        done = -1;
    else if (self->at[TALLY] != NULL && (set_number(self->at[TALLY], &names.left, state.left) < 0 ||
                                         set_number(self->at[TALLY], &names.number, state.number) < 0))
        done = -1;
    else if (self->at[PLACE] != NULL && self->at[PLACE] != Py_None)
        done = set(self->at[PLACE], &names.ahead, state.held);
    forget(&state);
    return done;
}

#include "_event.h"

/* -- the type ------------------------------------------------------------------------------------------------------ */

/* What is counted: None, or a pair of places that are figures. -1 with an exception. */
static int open_counted(Path *self, PyObject *counted)
{
    self->prompt = -1;
    if (counted == Py_None)
        return 0;
    Py_ssize_t prompt, answer;
    if (!PyTuple_Check(counted)) {
        PyErr_SetString(PyExc_TypeError, "what is counted is no pair");
        return -1;
    }
    if (!PyArg_ParseTuple(counted, "nn", &prompt, &answer))
        return -1;
    const Form *event = &self->event;
    if (prompt < 0 || prompt >= event->count || answer < 0 || answer >= event->count ||
        event->places[prompt] != FIGURE || event->places[answer] != FIGURE) {
        PyErr_SetString(PyExc_ValueError, "what is counted is no figure");
        return -1;
    }
    self->prompt = prompt;
    self->answer = answer;
    return 0;
}

/* -1 with an exception. */
static int open_template(Path *self, PyObject *template)
{
    static const char *const attributes[] = {"around", "kinds", "shown", "order", "bare", "bare_order", "line"};
    for (int name = AROUND; name <= BEFORE; name++)
        if ((self->at[name] = PyObject_GetAttrString(template, attributes[name])) == NULL)
            return -1;
    if (open_form(&self->event, self->at[AROUND], self->at[KINDS], 0) < 0)
        return -1;
    if (open_form(&self->shown, self->at[SHOWN], self->at[ORDER], self->event.count + 1) < 0 ||
        open_form(&self->bare, self->at[BARE], self->at[BARE_ORDER], self->event.count) < 0 ||
        PyBytes_AsStringAndSize(self->at[BEFORE], (char **)&self->before.text, &self->before.size) < 0)
        return -1;
    for (int place = 0; place < self->shown.count; place++)
        self->numbered |= self->shown.places[place] == self->event.count;
    while (self->content < self->event.count && self->event.places[self->content] != CONTENT)
        self->content++;
    if (self->content >= self->event.count || self->shown.count < 0) {
        PyErr_SetString(PyExc_ValueError, "a template has no content");
        return -1;
    }
    PyObject *counted = PyObject_GetAttrString(template, "counted"), *empties = NULL;
    int opened = counted == NULL ? -1 : open_counted(self, counted);
    if (opened == 0 && (empties = PyObject_GetAttrString(template, "empties")) != NULL)
        self->empties = PyObject_IsTrue(empties);
    opened = empties == NULL || self->empties < 0 ? -1 : opened;
    Py_XDECREF(counted);
    Py_XDECREF(empties);
    return opened;
}

/* None, or a gateway.guard.bytes_path.Record. -1 with an exception. */
static int open_record(Path *self, PyObject *record)
{
    if (record != Py_None) {
        PyObject *given[3];
        if (!PyTuple_Check(record)) {
            PyErr_SetString(PyExc_TypeError, "a record is a tuple");
            return -1;
        }
        if (!PyArg_ParseTuple(record, "OOO", &given[0], &given[1], &given[2]))
            return -1;
        for (int name = TALLY; name <= PLACE; name++)
            self->at[name] = Py_NewRef(given[name - TALLY]);
    } else if (self->numbered) {
        PyErr_SetString(PyExc_ValueError, "no record has the number of an event");
        return -1;
    }
    return 0;
}

static int path_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    Path *self = (Path *)object;
    PyObject *given[TALLY], *template, *record;
    if (self->at[AROUND] != NULL || (keywords != NULL && PyDict_Size(keywords) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a path is made once, and without keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "OOOOOOOOOOOOOOnn", &template, &given[GUARD], &given[TEXT], &given[COUNTS],
                          &given[SCANNER], &given[CURSOR], &given[RELEASER], &given[OVER_WORDS], &given[DECODE],
                          &given[ENCODE], &given[ESCAPE], &given[HELD], &given[HOLD], &record, &self->piece,
                          &self->limit))
        return -1;
    if (open_template(self, template) < 0 || open_record(self, record) < 0)
        return -1;
    for (int name = GUARD; name < TALLY; name++)
        self->at[name] = Py_NewRef(given[name]);
    self->at[SENT] = PyBytes_FromStringAndSize(NULL, 0);
    self->at[REST] = PyBytes_FromStringAndSize(NULL, 0);
    if (self->at[SENT] == NULL || self->at[REST] == NULL)
        return -1;
    if (open_histogram(&self->held, given[HELD]) < 0 || open_histogram(&self->hold, given[HOLD]) < 0)
        return -1;
    self->ready = 1;
    return 0;
}

static int path_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Path *self = (Path *)object;
    Py_VISIT(Py_TYPE(object));
    for (int name = 0; name < REFERENCES; name++)
        Py_VISIT(self->at[name]);
    Py_VISIT(self->held.counts);
    Py_VISIT(self->hold.counts);
    Py_VISIT(self->state.state);
    Py_VISIT(self->state.held);
    Py_VISIT(self->state.since);
    Py_VISIT(self->state.now);
    return 0;
}

static int path_clear(PyObject *object)
{
    Path *self = (Path *)object;
    self->ready = 0;
    for (int name = 0; name < REFERENCES; name++)
        Py_CLEAR(self->at[name]);
    Py_CLEAR(self->held.counts);
    Py_CLEAR(self->hold.counts);
    forget(&self->state);
    return 0;
}

static void dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    ((inquiry)PyType_GetSlot(type, Py_tp_clear))(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef path_methods[] = {
    {"feed", (PyCFunction)(void (*)(void))feed, METH_FASTCALL, feed_doc},
    {"write_back", write_back, METH_NOARGS, write_back_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef path_members[] = {
    {"sent", T_OBJECT, offsetof(Path, at) + SENT * sizeof(PyObject *), READONLY, "For the events that were taken."},
    {"rest", T_OBJECT, offsetof(Path, at) + REST * sizeof(PyObject *), READONLY, "The bytes that were not taken."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot path_slots[] = {
    {Py_tp_init, path_init},         {Py_tp_new, PyType_GenericNew},  {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, path_traverse}, {Py_tp_clear, path_clear},       {Py_tp_methods, path_methods},
    {Py_tp_members, path_members},   {Py_tp_doc, "See bytes_path.py."}, {0, NULL},
};

static PyType_Spec path_spec = {
    "gateway.guard._bytes_path.BytesPath", sizeof(Path), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, path_slots,
};

#include "_read_path.h"

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_bytes_path", "gateway.guard.bytes_path in C.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__bytes_path(void)
{
    const struct {
        Attribute *attribute;
        const char *name;
    } opened[] = {
        {&names.ahead, "ahead"}, {&names.base, "base"}, {&names.disconnected, "disconnected"},
        {&names.folded, "folded"}, {&names.held, "held"}, {&names.held_since, "held_since"}, {&names.left, "left"},
        {&names.live, "live"}, {&names.machine, "machine"}, {&names.now, "now"}, {&names.number, "number"},
        {&names.scanned, "scanned"}, {&names.state, "state"}, {&names.total, "total"}, {&names.usage, "usage"},
        {&names.write_paused, "write_paused"}, {&names.written, "written"},
    };
    for (size_t at = 0; at < sizeof(opened) / sizeof(opened[0]); at++)
        if (open_attribute(opened[at].attribute, opened[at].name) < 0)
            return NULL;
    if ((names.scan_quickly = PyUnicode_InternFromString("scan_quickly")) == NULL)
        return NULL;
    PyObject *module = PyModule_Create(&module_definition), *read_type = NULL;
    path_type = module == NULL ? NULL : (PyTypeObject *)PyType_FromSpec(&path_spec);
    if (path_type == NULL || (read_type = PyType_FromSpec(&read_spec)) == NULL ||
        PyModule_AddType(module, path_type) < 0 || PyModule_AddType(module, (PyTypeObject *)read_type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(read_type);
    return module;
}
