/* Attributes of Python's objects, and the histograms among these, for `_bytes_path.c`. */

#define MAX_BOUNDS 16 /* of a histogram */

#define REPLACE(variable, value)          \
    do {                                  \
        PyObject *old_value = (variable); \
        (variable) = (value);             \
        Py_XDECREF(old_value);            \
    } while (0)

/* The name of an attribute, and its slot in the type that last had it; NULL where that has none. */
typedef struct {
    PyObject *name, *slot;
    PyTypeObject *type;
} Attribute;

static struct {
    Attribute ahead, arrival, base, disconnected, folded, held, held_since, left, live, machine, now, number, scanned,
        state, total, usage, write_paused, written;
    PyObject *scan_quickly, *walk;
} names;
static descrgetfunc get_slot;
static descrsetfunc set_slot;

/* Has the type of an object a slot for it? To find it again each time is most of what reading one costs. */
static int has_slot(Attribute *attribute, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (type != attribute->type) {
        PyObject *slot = PyObject_GetAttr((PyObject *)type, attribute->name);
        if (slot == NULL)
            PyErr_Clear();
        else if (!Py_IS_TYPE(slot, &PyMemberDescr_Type))
            Py_CLEAR(slot);
        REPLACE(attribute->slot, slot);
        PyTypeObject *old_type = attribute->type;
        attribute->type = (PyTypeObject *)Py_NewRef((PyObject *)type);
        Py_XDECREF((PyObject *)old_type);
    }
    return attribute->slot != NULL;
}

static PyObject *get(PyObject *object, Attribute *attribute)
{
    if (has_slot(attribute, object))
        return get_slot(attribute->slot, object, (PyObject *)Py_TYPE(object));
    return PyObject_GetAttr(object, attribute->name);
}

static int set(PyObject *object, Attribute *attribute, PyObject *value)
{
    if (has_slot(attribute, object))
        return set_slot(attribute->slot, object, value);
    return PyObject_SetAttr(object, attribute->name, value);
}

/* A number; -1 also with an exception. */
static Py_ssize_t get_size(PyObject *object, Attribute *attribute)
{
    PyObject *value = get(object, attribute);
    const Py_ssize_t size = value == NULL ? -1 : PyLong_AsSsize_t(value);
    Py_XDECREF(value);
    return size;
}

/* -1 with an exception. */
static int set_size(PyObject *object, Attribute *attribute, Py_ssize_t size)
{
    PyObject *value = PyLong_FromSsize_t(size);
    const int done = value == NULL ? -1 : set(object, attribute, value);
    Py_XDECREF(value);
    return done;
}

/* -1 with an exception. */
static int add_to(PyObject *object, Attribute *attribute, Py_ssize_t amount)
{
    const Py_ssize_t before = get_size(object, attribute);
    return before == -1 && PyErr_Occurred() ? -1 : set_size(object, attribute, before + amount);
}

/* -- histograms ---------------------------------------------------------------------------------------------------- */

/* A gateway.guard.findings.Histogram, and what is to be added to it. */
typedef struct {
    PyObject *self, *counts; /* borrowed from the path; a reference */
    Py_ssize_t size;
    double bounds[MAX_BOUNDS];
    Py_ssize_t seen[MAX_BOUNDS + 1];
    double total; /* with what is to be added, once it has been read */
} Histogram;

/* -1 with an exception. */
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

/* -1 with an exception. */
static int read_total(Histogram *histogram)
{
    PyObject *total = get(histogram->self, &names.total);
    histogram->total = total == NULL ? -1.0 : PyFloat_AsDouble(total);
    Py_XDECREF(total);
    return PyErr_Occurred() ? -1 : 0;
}

static void observe(Histogram *histogram, double value)
{
    Py_ssize_t at = 0;
    while (at < histogram->size && histogram->bounds[at] < value)
        at++;
    histogram->seen[at]++;
    histogram->total += value;
}

/* Adds what was observed; -1 with an exception. */
static int write_histogram(Histogram *histogram)
{
    for (Py_ssize_t at = 0; at <= histogram->size; at++) {
        const Py_ssize_t seen = histogram->seen[at];
        if (seen == 0)
            continue;
        histogram->seen[at] = 0;
        PyObject *count = PyList_GetItem(histogram->counts, at); /* borrowed; checks the index */
        const Py_ssize_t before = count == NULL ? -1 : PyLong_AsSsize_t(count);
        if (before == -1 && PyErr_Occurred())
            return -1;
        count = PyLong_FromSsize_t(before + seen);
        if (count == NULL || PyList_SetItem(histogram->counts, at, count) < 0)
            return -1;
    }
    PyObject *total = PyFloat_FromDouble(histogram->total);
    const int done = total == NULL ? -1 : set(histogram->self, &names.total, total);
    Py_XDECREF(total);
    return done;
}
