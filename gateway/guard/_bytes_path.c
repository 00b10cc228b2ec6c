/* `BytesPath` of gateway/guard/bytes_path.py, to the letter: that one says what is right, and the same tests run for
   both. An event for which this way is not taken leaves no trace. `ReadPath` is HTTP's framing around it, from a read of
   the upstream's socket to the write to the client's; the way through gateway/http1 and `HotPath` says what is right.

   Only the stable ABI is used. Every object that is read is checked for its type where Python code could have put
   another there; every index is checked against the length it belongs to. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <structmember.h>
#include <string.h>

#define MAX_BOUNDS 16 /* of a histogram */

/* A gateway.guard.channels.Histogram. */
typedef struct {
    PyObject *self, *counts; /* borrowed from the path; a reference */
    Py_ssize_t size;
    double bounds[MAX_BOUNDS];
} Histogram;

/* What a path refers to, and the parameters of its constructor, in their order. */
enum {
    BEFORE, BETWEEN, AFTER, SHOWN_BEFORE, SHOWN_AFTER, /* bytes */
    TEXT, COUNTS, SCANNER, CURSOR, RELEASER,           /* CURSOR is None where the scanner has several */
    DECODE, ENCODE, ESCAPE,                            /* what reads and writes a content that is not plain */
    HELD, HOLD,                                        /* histograms */
    SENT, REST,                                        /* not parameters */
    REFERENCES
};

typedef struct {
    PyObject_HEAD
    PyObject *at[REFERENCES];
    Histogram held, hold;
    Py_ssize_t piece, limit;
    int ready;
} Path;

#define SIZE(name) PyBytes_Size(self->at[name])
#define BYTES(name) PyBytes_AsString(self->at[name])
#define CALL(function, argument) PyObject_CallFunctionObjArgs(self->at[function], argument, NULL)
#define REPLACE(variable, value)          \
    do {                                  \
        PyObject *old_value = (variable); \
        (variable) = (value);             \
        Py_XDECREF(old_value);            \
    } while (0)

static struct {
    PyObject *arrival, *base, *disconnected, *folded, *held, *held_since, *live, *machine, *now, *scan_quickly, *scanned,
        *state, *total, *walk, *write_paused, *written;
} names;

/* -- attributes ---------------------------------------------------------------------------------------------------- */

/* -1 with an exception. */
static int add_to(PyObject *object, PyObject *name, Py_ssize_t amount)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL)
        return -1;
    Py_ssize_t before = PyLong_AsSsize_t(value);
    Py_DECREF(value);
    if (before == -1 && PyErr_Occurred())
        return -1;
    value = PyLong_FromSsize_t(before + amount);
    if (value == NULL)
        return -1;
    int done = PyObject_SetAttr(object, name, value);
    Py_DECREF(value);
    return done;
}

static int observe(const Histogram *histogram, double value)
{
    Py_ssize_t at = 0;
    while (at < histogram->size && histogram->bounds[at] < value)
        at++;
    PyObject *count = PyList_GetItem(histogram->counts, at); /* borrowed; checks the index */
    if (count == NULL)
        return -1;
    Py_ssize_t before = PyLong_AsSsize_t(count);
    if (before == -1 && PyErr_Occurred())
        return -1;
    count = PyLong_FromSsize_t(before + 1);
    if (count == NULL || PyList_SetItem(histogram->counts, at, count) < 0)
        return -1;
    if (value == 0.0)
        return 0;
    PyObject *total = PyObject_GetAttr(histogram->self, names.total);
    if (total == NULL)
        return -1;
    double sum = PyFloat_AsDouble(total) + value;
    Py_DECREF(total);
    if (PyErr_Occurred() || (total = PyFloat_FromDouble(sum)) == NULL)
        return -1;
    int done = PyObject_SetAttr(histogram->self, names.total, total);
    Py_DECREF(total);
    return done;
}

/* -- one event ----------------------------------------------------------------------------------------------------- */

/* Where the content of an event begins and ends, without its quotes; 0 if it is no event of the template. */
static int find_content(const Path *self, const char *data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t *begin,
                        Py_ssize_t *stop)
{
    const Py_ssize_t before = SIZE(BEFORE), after = SIZE(AFTER);
    const Py_ssize_t between = SIZE(BETWEEN);
    if (end - at < before + after || end - at > self->limit)
        return 0;
    *begin = at + before;
    *stop = end - after;
    if (memcmp(data + at, BYTES(BEFORE), (size_t)before) != 0 ||
        memcmp(data + *stop, BYTES(AFTER), (size_t)after) != 0)
        return 0;
    if (between == 0)
        return 1;
    /* Nothing in the padding ends a string, so the last place is the one behind the content; and of letters and digits
       alone, it is behind them. */
    Py_ssize_t padding = *stop;
    while (padding > *begin) {
        const char byte = data[padding - 1];
        if (!((byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z')))
            break;
        padding--;
    }
    if (padding - *begin < between)
        return 0;
    *stop = padding - between;
    return memcmp(data + *stop, BYTES(BETWEEN), (size_t)between) == 0;
}

/* Is this JSON's spelling of itself, in ASCII? */
static int is_plain(const char *text, Py_ssize_t size)
{
    for (Py_ssize_t at = 0; at < size; at++) {
        const unsigned char byte = (unsigned char)text[at];
        if (byte < 0x20 || byte > 0x7e || byte == '"' || byte == '\\')
            return 0;
    }
    return 1;
}

/* The content, a new reference; NULL with an exception, or without one if it is none. `text` has a quote before it and
   one behind it. */
static PyObject *decoded(const Path *self, const char *text, Py_ssize_t size)
{
    if (is_plain(text, size))
        return PyUnicode_FromStringAndSize(text, size);
    PyObject *quoted = PyBytes_FromStringAndSize(text - 1, size + 2);
    if (quoted == NULL)
        return NULL;
    PyObject *given = CALL(DECODE, quoted);
    Py_DECREF(quoted);
    if (given == NULL && PyErr_ExceptionMatches(PyExc_ValueError))
        PyErr_Clear();
    if (given != NULL && !PyUnicode_Check(given)) {
        Py_DECREF(given);
        PyErr_SetString(PyExc_TypeError, "decode returned no text");
        return NULL;
    }
    return given;
}

/* The state behind `given`, a new reference; None where it is remarkable; NULL with an exception. */
static PyObject *walked(const Path *self, PyObject *given, Py_ssize_t length)
{
    PyObject *state = PyObject_GetAttr(self->at[CURSOR], names.state);
    for (Py_ssize_t at = 0; state != NULL && at < length; at++) {
        if (!PyDict_Check(state)) {
            PyErr_SetString(PyExc_TypeError, "a state is no table");
            break;
        }
        const Py_UCS4 character = PyUnicode_ReadChar(given, at);
        PyObject *key = PyUnicode_FromOrdinal((int)character);
        if (key == NULL)
            break;
        PyObject *target = PyDict_GetItemWithError(state, key); /* borrowed */
        Py_DECREF(key);
        if (target == NULL) {
            Py_DECREF(state);
            if (PyErr_Occurred())
                return NULL;
            PyObject *machine = PyObject_GetAttr(self->at[CURSOR], names.machine);
            PyObject *from = machine == NULL ? NULL : PyObject_GetAttr(self->at[CURSOR], names.state);
            PyObject *found = from == NULL ? NULL : PyObject_CallMethodObjArgs(machine, names.walk, from, given, NULL);
            Py_XDECREF(machine);
            Py_XDECREF(from);
            return found;
        }
        Py_INCREF(target);
        Py_DECREF(state);
        state = target;
        PyObject *arrival = PyObject_GetAttr(state, names.arrival);
        if (arrival == NULL)
            break;
        Py_DECREF(arrival);
        if (arrival != Py_None) {
            Py_DECREF(state);
            return Py_NewRef(Py_None);
        }
    }
    if (PyErr_Occurred())
        Py_CLEAR(state);
    return state;
}

/* Steps over `given`; the length of the live suffix, -1 where something is remarkable and nothing has happened, -2 with
   an exception. */
static Py_ssize_t scan(const Path *self, PyObject *given, Py_ssize_t length)
{
    PyObject *found;
    if (self->at[CURSOR] == Py_None) {
        found = PyObject_CallMethodObjArgs(self->at[SCANNER], names.scan_quickly, given, NULL);
    } else {
        PyObject *state = walked(self, given, length);
        if (state == NULL)
            return -2;
        if (state == Py_None) {
            Py_DECREF(state);
            return -1;
        }
        found = PyObject_GetAttr(state, names.live);
        if (found != NULL && PyLong_AsSsize_t(found) < 0) { /* not worked out yet */
            Py_CLEAR(found);
            PyObject *machine = PyErr_Occurred() ? NULL : PyObject_GetAttr(self->at[CURSOR], names.machine);
            found = machine == NULL ? NULL : PyObject_CallMethodObjArgs(machine, names.live, state, NULL);
            Py_XDECREF(machine);
        }
        if (found != NULL && (PyObject_SetAttr(self->at[CURSOR], names.state, state) < 0 ||
                              add_to(self->at[CURSOR], names.folded, length) < 0 ||
                              add_to(self->at[SCANNER], names.scanned, length) < 0))
            Py_CLEAR(found);
        Py_DECREF(state);
    }
    if (found == NULL)
        return -2;
    Py_ssize_t live = found == Py_None ? -1 : PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -2 : live;
}

/* What comes out once `given` has been scanned, a new reference; what is held is counted as in
   ChannelText.note_held. */
static PyObject *released(const Path *self, PyObject *given, Py_ssize_t live, PyObject *now)
{
    PyObject *held = PyObject_GetAttr(self->at[RELEASER], names.held), *shown = NULL, *since = NULL;
    if (held == NULL)
        return NULL;
    REPLACE(held, PyUnicode_Concat(held, given));
    const Py_ssize_t length = held == NULL ? -1 : PyUnicode_GetLength(held);
    if (length < 0)
        goto failed;
    const Py_ssize_t cut = length > live ? length - live : 0;
    shown = PyUnicode_Substring(held, 0, cut);
    if (shown == NULL)
        goto failed;
    if (cut > 0) {
        REPLACE(held, PyUnicode_Substring(held, cut, length));
        if (held == NULL || add_to(self->at[RELEASER], names.base, cut) < 0 || add_to(self->at[TEXT], names.written, cut) < 0)
            goto failed;
    }
    const Py_ssize_t kept = length - cut;
    if (PyObject_SetAttr(self->at[RELEASER], names.held, held) < 0 || observe(&self->held, (double)kept) < 0)
        goto failed;
    since = PyObject_GetAttr(self->at[TEXT], names.held_since);
    if (since == NULL)
        goto failed;
    if (since != Py_None && (cut > 0 || kept == 0)) {
        const double waited = PyFloat_AsDouble(now) - PyFloat_AsDouble(since);
        if (PyErr_Occurred() || observe(&self->hold, waited) < 0 ||
            PyObject_SetAttr(self->at[TEXT], names.held_since, kept ? now : Py_None) < 0)
            goto failed;
    } else if (kept && since == Py_None && PyObject_SetAttr(self->at[TEXT], names.held_since, now) < 0)
        goto failed;
    Py_DECREF(since);
    Py_DECREF(held);
    return shown;
failed:
    Py_XDECREF(since);
    Py_XDECREF(held);
    Py_XDECREF(shown);
    return NULL;
}

/* The event with this content, a new reference. */
static PyObject *shown_event(const Path *self, PyObject *shown)
{
    PyObject *encoded = NULL, *event;
    Py_ssize_t size;
    const char *content = PyUnicode_AsUTF8AndSize(shown, &size);
    if (content == NULL)
        return NULL;
    const int plain = is_plain(content, size);
    if (!plain) {
        encoded = CALL(ENCODE, shown);
        if (encoded != NULL)
            REPLACE(encoded, CALL(ESCAPE, encoded));
        if (encoded == NULL)
            return NULL;
        if (!PyBytes_Check(encoded)) {
            Py_DECREF(encoded);
            PyErr_SetString(PyExc_TypeError, "encode returned no bytes");
            return NULL;
        }
        content = PyBytes_AsString(encoded);
        size = PyBytes_Size(encoded);
    }
    const Py_ssize_t before = SIZE(SHOWN_BEFORE), after = SIZE(SHOWN_AFTER);
    event = PyBytes_FromStringAndSize(NULL, before + size + 2 * plain + after);
    if (event != NULL) {
        char *to = PyBytes_AsString(event);
        memcpy(to, BYTES(SHOWN_BEFORE), (size_t)before);
        to += before;
        if (plain)
            *to++ = '"';
        memcpy(to, content, (size_t)size);
        to += size;
        if (plain)
            *to++ = '"';
        memcpy(to, BYTES(SHOWN_AFTER), (size_t)after);
    }
    Py_XDECREF(encoded);
    return event;
}

/* Takes one event. 1 if it was taken, 0 if not, -1 with an exception. */
static int relay_event(const Path *self, const char *data, Py_ssize_t at, Py_ssize_t end, PyObject *now, PyObject **sent)
{
    Py_ssize_t begin, stop;
    if (!find_content(self, data, at, end, &begin, &stop))
        return 0;
    PyObject *given = decoded(self, data + begin, stop - begin);
    if (given == NULL)
        return PyErr_Occurred() ? -1 : 0;
    const Py_ssize_t length = PyUnicode_GetLength(given);
    /* Where a backtick stands JSON may begin, which is a text of its own. */
    const Py_ssize_t fence = PyUnicode_FindChar(given, '`', 0, length, 1);
    Py_ssize_t live = fence == -2 ? -2 : length > self->piece || fence >= 0 ? -1 : scan(self, given, length);
    PyObject *shown = live < 0 ? NULL : released(self, given, live, now);
    Py_DECREF(given);
    if (shown == NULL)
        return live == -1 ? 0 : -1;
    int taken = 1;
    if (PyUnicode_GetLength(shown) > 0 || length == 0) {
        PyObject *event = shown_event(self, shown);
        if (event == NULL)
            taken = -1;
        else if (*sent == NULL)
            *sent = event;
        else {
            PyBytes_ConcatAndDel(sent, event);
            taken = *sent == NULL ? -1 : 1;
        }
    }
    Py_DECREF(shown);
    return taken;
}

/* Takes events until one is not taken. Where the next one begins; -1 with an exception. */
static Py_ssize_t relay_events(const Path *self, const char *data, Py_ssize_t at, Py_ssize_t size, PyObject *now,
                               PyObject **sent)
{
    while (at < size) {
        /* The first empty line behind `at`. */
        const char *line = data + at;
        do
            line = memchr(line, '\n', (size_t)(data + size - line));
        while (line != NULL && ++line < data + size && *line != '\n');
        if (line == NULL || line >= data + size)
            break;
        const Py_ssize_t end = line - 1 - data;
        const int taken = relay_event(self, data, at, end, now, sent);
        if (taken < 0)
            return -1;
        if (!taken)
            break;
        at = end + 2;
    }
    return at;
}

PyDoc_STRVAR(feed_doc, "What to send for a read; None where not all of it was taken. `now` in seconds.");

static PyObject *feed(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Path *self = (Path *)object;
    if (!self->ready || count != 2 || !PyBytes_Check(arguments[0]) || !PyFloat_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "feed takes bytes and a float");
        return NULL;
    }
    PyObject *now = arguments[1], *sent = NULL;
    const char *data = PyBytes_AsString(arguments[0]);
    const Py_ssize_t size = PyBytes_Size(arguments[0]);
    if (PyObject_SetAttr(self->at[COUNTS], names.now, now) < 0)
        return NULL;
    const Py_ssize_t at = relay_events(self, data, 0, size, now, &sent);
    if (at < 0) {
        Py_XDECREF(sent);
        return NULL;
    }
    if (sent == NULL && (sent = PyBytes_FromStringAndSize(NULL, 0)) == NULL)
        return NULL;
    if (at == size)
        return sent;
    PyObject *rest = PyBytes_FromStringAndSize(data + at, size - at);
    if (rest == NULL) {
        Py_DECREF(sent);
        return NULL;
    }
    REPLACE(self->at[SENT], sent);
    REPLACE(self->at[REST], rest);
    Py_RETURN_NONE;
}

/* -- the type ------------------------------------------------------------------------------------------------------ */

static int open_histogram(Histogram *histogram, PyObject *self)
{
    PyObject *bounds = PyObject_GetAttrString(self, "bounds");
    histogram->self = self;
    histogram->counts = PyObject_GetAttrString(self, "counts");
    if (bounds != NULL && histogram->counts != NULL) {
        histogram->size = PyTuple_Check(bounds) ? PyTuple_Size(bounds) : MAX_BOUNDS + 1;
        if (histogram->size > MAX_BOUNDS || !PyList_Check(histogram->counts))
            PyErr_SetString(PyExc_ValueError, "a histogram has up to 16 bounds in a tuple, and its counts in a list");
        for (Py_ssize_t at = 0; !PyErr_Occurred() && at < histogram->size; at++)
            histogram->bounds[at] = PyFloat_AsDouble(PyTuple_GetItem(bounds, at));
    }
    Py_XDECREF(bounds);
    return PyErr_Occurred() ? -1 : 0;
}

static int path_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    Path *self = (Path *)object;
    PyObject *given[SENT];
    if (self->at[BEFORE] != NULL || (keywords != NULL && PyDict_Size(keywords) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a path is made once, and without keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "SSSSSOOOOOOOOOOnn", &given[BEFORE], &given[BETWEEN], &given[AFTER],
                          &given[SHOWN_BEFORE], &given[SHOWN_AFTER], &given[TEXT], &given[COUNTS], &given[SCANNER],
                          &given[CURSOR], &given[RELEASER], &given[DECODE], &given[ENCODE], &given[ESCAPE],
                          &given[HELD], &given[HOLD], &self->piece, &self->limit))
        return -1;
    if (PyBytes_Size(given[BEFORE]) == 0) { /* its last byte is the quote in front of the content */
        PyErr_SetString(PyExc_ValueError, "nothing stands before the content");
        return -1;
    }
    for (int name = 0; name < SENT; name++)
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

/* -- a read of the upstream's socket --------------------------------------------------------------------------------- */

enum {
    CLOCK, WRITE, CYCLE, FLOW, OVERHEAD, /* the parameters of its constructor, in their order, before numbers */
    EVENTS, FAILURE,                     /* members */
    READ_REFERENCES
};

typedef struct {
    PyObject_HEAD
    PyObject *at[READ_REFERENCES];
    Histogram overhead;
    Py_ssize_t small, most, escape, value;
    int ready;
} ReadPath;

static PyTypeObject *path_type;
static const char LINE_END[] = "\r\n";
#define LINE_END_SIZE 2
#define MAX_DIGITS 7 /* of the size of a chunk */

/* As gateway.proxy.asgi.scan_size weighs it. */
static int is_small(const ReadPath *self, const char *data, Py_ssize_t size)
{
    if (size <= self->small)
        return 1;
    Py_ssize_t weight = size;
    for (Py_ssize_t at = 0; at < size && weight <= self->most; at++)
        weight += data[at] == '\\' ? self->escape : data[at] == ',' ? self->value : 0;
    return weight <= self->most;
}

/* The size of the chunk whose line begins at `at`, which moves behind that line; 0 where not all of it is there, or it
   is the last, or has more than its size in its line. */
static Py_ssize_t chunk_at(const char *data, Py_ssize_t size, Py_ssize_t *at)
{
    Py_ssize_t length = 0, place = *at;
    for (; place < size && place - *at < MAX_DIGITS; place++) {
        const char byte = data[place];
        if (byte >= '0' && byte <= '9')
            length = length * 16 + byte - '0';
        else if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f')
            length = length * 16 + (byte | 0x20) - 'a' + 10;
        else
            break;
    }
    if (size - place < length + 2 * LINE_END_SIZE || memcmp(data + place, LINE_END, LINE_END_SIZE) != 0 ||
        memcmp(data + place + LINE_END_SIZE + length, LINE_END, LINE_END_SIZE) != 0)
        return 0;
    *at = place + LINE_END_SIZE;
    return length;
}

/* A chunk, a new reference. */
static PyObject *chunk_of(PyObject *body)
{
    const Py_ssize_t size = PyBytes_Size(body);
    int digits = 1;
    while (size >> 4 * digits)
        digits++;
    PyObject *chunk = PyBytes_FromStringAndSize(NULL, digits + size + 2 * LINE_END_SIZE);
    if (chunk != NULL) {
        char *to = PyBytes_AsString(chunk);
        while (digits)
            *to++ = "0123456789abcdef"[size >> 4 * --digits & 15];
        memcpy(to, LINE_END, LINE_END_SIZE);
        memcpy(to + LINE_END_SIZE, PyBytes_AsString(body), (size_t)size);
        memcpy(to + LINE_END_SIZE + size, LINE_END, LINE_END_SIZE);
    }
    return chunk;
}

/* What is left of a read, a new reference: from `at` on, where `left` bytes more belong to a chunk whose line has been
   taken; None if there is nothing. */
static PyObject *rest_of(const char *data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t left)
{
    if (at == size)
        return Py_NewRef(Py_None);
    PyObject *rest = PyBytes_FromStringAndSize(data + at, size - at);
    if (left == 0 || rest == NULL)
        return rest;
    PyObject *line = PyBytes_FromFormat("%x\r\n", (unsigned)left);
    PyBytes_ConcatAndDel(&line, rest);
    return line;
}

/* -1 with an exception, as for an attribute that is not there. */
static int is_true(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    const int found = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return found;
}

/* What is left of the read, a new reference, None if nothing is; NULL with an exception. */
static PyObject *relay_read(const ReadPath *self, const Path *path, PyObject *given)
{
    const char *data = PyBytes_AsString(given);
    const Py_ssize_t size = PyBytes_Size(given);
    Py_ssize_t at = 0, left = 0;
    PyObject *sent = NULL, *rest = NULL, *chunk = NULL, *after = NULL;
    PyObject *now = PyObject_CallNoArgs(self->at[CLOCK]);
    if (now == NULL || PyObject_SetAttr(path->at[COUNTS], names.now, now) < 0)
        goto done;
    while (at < size && left == 0) {
        Py_ssize_t begin = at;
        const Py_ssize_t length = chunk_at(data, size, &begin);
        const Py_ssize_t reached = length == 0 ? begin : relay_events(path, data, begin, begin + length, now, &sent);
        if (reached < 0)
            goto done;
        if (length == 0 || reached == begin)
            break;
        left = begin + length - reached;
        at = left ? reached : reached + LINE_END_SIZE;
    }
    if (at == 0) {
        rest = Py_NewRef(given);
        goto done;
    }
    if ((after = PyObject_CallNoArgs(self->at[CLOCK])) == NULL)
        goto done;
    const double spent = PyFloat_AsDouble(after) - PyFloat_AsDouble(now);
    if (PyErr_Occurred() || observe(&self->overhead, spent) < 0)
        goto done;
    if (sent != NULL) {
        PyObject *written = (chunk = chunk_of(sent)) == NULL ? NULL : CALL(WRITE, chunk);
        if (written == NULL)
            goto done;
        Py_DECREF(written);
    }
    rest = rest_of(data, at, size, left);
done:
    Py_XDECREF(sent);
    Py_XDECREF(chunk);
    Py_XDECREF(after);
    Py_XDECREF(now);
    return rest;
}

PyDoc_STRVAR(read_feed_doc, "What is left of a read for the slow way; None if nothing is.");

static PyObject *read_feed(PyObject *object, PyObject *given)
{
    ReadPath *self = (ReadPath *)object;
    PyObject *events = self->at[EVENTS], *rest = NULL, *type, *failure, *trace;
    if (!self->ready || !PyBytes_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "feed takes bytes");
        return NULL;
    }
    if (events == NULL || Py_TYPE(events) != path_type || !((Path *)events)->ready || self->at[FAILURE] != NULL ||
        !is_small(self, PyBytes_AsString(given), PyBytes_Size(given)))
        return Py_NewRef(given);
    int unable = is_true(self->at[FLOW], names.write_paused);
    unable = unable ? unable : is_true(self->at[CYCLE], names.disconnected);
    if (unable == 0) {
        Py_INCREF(events); /* `write` could put another in its place */
        rest = relay_read(self, (const Path *)events, given);
        Py_DECREF(events);
    } else if (unable > 0)
        rest = Py_NewRef(given);
    if (rest != NULL || !PyErr_ExceptionMatches(PyExc_Exception))
        return rest;
    PyErr_Fetch(&type, &failure, &trace);
    PyErr_NormalizeException(&type, &failure, &trace);
    if (trace != NULL)
        PyException_SetTraceback(failure, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    self->at[FAILURE] = failure;
    return Py_NewRef(given);
}

static int read_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    ReadPath *self = (ReadPath *)object;
    PyObject *given[EVENTS];
    if (self->at[CLOCK] != NULL || (keywords != NULL && PyDict_Size(keywords) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a path is made once, and without keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "OOOOOnnnn", &given[CLOCK], &given[WRITE], &given[CYCLE], &given[FLOW],
                          &given[OVERHEAD], &self->small, &self->most, &self->escape, &self->value))
        return -1;
    for (int name = 0; name < EVENTS; name++)
        self->at[name] = Py_NewRef(given[name]);
    if (open_histogram(&self->overhead, given[OVERHEAD]) < 0)
        return -1;
    self->ready = 1;
    return 0;
}

static int read_traverse(PyObject *object, visitproc visit, void *arg)
{
    const ReadPath *self = (ReadPath *)object;
    Py_VISIT(Py_TYPE(object));
    for (int name = 0; name < READ_REFERENCES; name++)
        Py_VISIT(self->at[name]);
    Py_VISIT(self->overhead.counts);
    return 0;
}

static int read_clear(PyObject *object)
{
    ReadPath *self = (ReadPath *)object;
    self->ready = 0;
    for (int name = 0; name < READ_REFERENCES; name++)
        Py_CLEAR(self->at[name]);
    Py_CLEAR(self->overhead.counts);
    return 0;
}

static PyMethodDef read_methods[] = {
    {"feed", read_feed, METH_O, read_feed_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef read_members[] = {
    {"events", T_OBJECT, offsetof(ReadPath, at) + EVENTS * sizeof(PyObject *), 0, "The way that events take, or None."},
    {"failure", T_OBJECT, offsetof(ReadPath, at) + FAILURE * sizeof(PyObject *), READONLY, "What it raised, or None."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot read_slots[] = {
    {Py_tp_init, read_init},         {Py_tp_new, PyType_GenericNew},  {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, read_traverse}, {Py_tp_clear, read_clear},       {Py_tp_methods, read_methods},
    {Py_tp_members, read_members},   {Py_tp_doc, "See bytes_path.py."}, {0, NULL},
};

static PyType_Spec read_spec = {
    "gateway.guard._bytes_path.ReadPath", sizeof(ReadPath), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, read_slots,
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_bytes_path", "gateway.guard.bytes_path in C.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__bytes_path(void)
{
    const struct {
        PyObject **at;
        const char *text;
    } interned[] = {
        {&names.arrival, "arrival"}, {&names.base, "base"},       {&names.folded, "folded"},
        {&names.held, "held"},       {&names.live, "live"},       {&names.held_since, "held_since"},
        {&names.machine, "machine"}, {&names.now, "now"},         {&names.scan_quickly, "scan_quickly"},
        {&names.scanned, "scanned"}, {&names.state, "state"},     {&names.total, "total"},
        {&names.walk, "walk"},       {&names.written, "written"},
        {&names.disconnected, "disconnected"},
        {&names.write_paused, "write_paused"},
    };
    for (size_t at = 0; at < sizeof(interned) / sizeof(interned[0]); at++)
        if ((*interned[at].at = PyUnicode_InternFromString(interned[at].text)) == NULL)
            return NULL;
    PyObject *module = PyModule_Create(&module_definition), *read_type = NULL;
    path_type = module == NULL ? NULL : (PyTypeObject *)PyType_FromSpec(&path_spec);
    if (path_type == NULL || (read_type = PyType_FromSpec(&read_spec)) == NULL ||
        PyModule_AddType(module, path_type) < 0 || PyModule_AddType(module, (PyTypeObject *)read_type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(read_type);
    return module;
}
