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
    const Py_ssize_t each = self->escape > self->value ? self->escape : self->value; /* that a byte adds, at most */
    Py_ssize_t weight = size;
    for (Py_ssize_t at = 0; at < size && weight <= self->most; at++) {
        if (weight + (size - at) * each <= self->most)
            return 1;
        weight += data[at] == '\\' ? self->escape : data[at] == ',' ? self->value : 0;
    }
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

/* What is left of the read, a new reference, None if nothing is; NULL with an exception. */
static PyObject *relay_read(ReadPath *self, Path *path, PyObject *given)
{
    const char *data = PyBytes_AsString(given);
    const Py_ssize_t size = PyBytes_Size(given);
    Py_ssize_t at = 0, left = 0;
    PyObject *sent = NULL, *rest = NULL, *chunk = NULL, *after = NULL;
    PyObject *now = PyObject_CallNoArgs(self->at[CLOCK]);
    if (now == NULL || read_state(path, now) < 0)
        goto done;
    while (at < size && left == 0) {
        Py_ssize_t begin = at;
        const Py_ssize_t length = chunk_at(data, size, &begin);
        const Py_ssize_t reached = length == 0 ? begin : relay_events(path, data, begin, begin + length, &sent);
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
    if (PyErr_Occurred() || read_total(&self->overhead) < 0)
        goto done;
    observe(&self->overhead, spent);
    if (write_histogram(&self->overhead) < 0)
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

PyDoc_STRVAR(read_feed_doc, "What is left of a read for the slow path; None if nothing is.");

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
    int unable = is_true(self->at[FLOW], &names.write_paused);
    unable = unable ? unable : is_true(self->at[CYCLE], &names.disconnected);
    if (unable == 0) {
        Py_INCREF(events); /* `write` could put another in its place */
        rest = relay_read(self, (Path *)events, given);
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

