# Doxygen's input filter: shows it hako's headers with the plain // comments of declarations as documentation comments.
#
#   // before a declaration   documents it, and each further declaration up to an empty line or the next comment
#   // after it               the same, for the declaration on that line
#   // that opens the file    documents the file; that of hako.h is also the main page
#   // REQUIRES: ...          is a precondition
#   indented lines            stay as they are: examples and tables
#
# Comments within functions and concepts, and those before an empty line, remain plain. Protected members count as private.
# A line of input makes at least one line of output, so the line numbers of Doxygen's messages may be too high, never too low.

# Text of a comment with Doxygen's special characters escaped, except within `code`.
function Escape(text,   parts, n, i, out) {
  n = split(text, parts, "`")
  for (i = 1; i <= n; ++i) {
    if (i % 2 == 1) gsub(/[\\@<>#%&*]/, "\\\\&", parts[i])
    out = out (i > 1 ? "`" : "") parts[i]
  }
  return out
}

# The lines of the comment block[1..size] as documentation, each led by `indent`.
function Documentation(indent,   i, text, out, verbatim, list) {
  out = ""
  for (i = 1; i <= size; ++i) {
    text = block[i]
    list = text ~ /^ *- / || (list && text ~ /^    /)
    if (text ~ /^  / && !list) {
      if (!verbatim) out = out indent "///\n" indent "/// ~~~{.txt}\n"
      verbatim = 1
      out = out indent "/// " text "\n"
      continue
    }
    if (text == "" && verbatim && i < size && block[i + 1] ~ /^  /) {
      out = out indent "///\n"
      continue
    }
    if (verbatim) out = out indent "/// ~~~\n"
    verbatim = 0
    if (sub(/^REQUIRES: /, "", text)) out = out indent "/// @pre " Escape(text) "\n"
    else out = out indent "/// " Escape(text) "\n"
  }
  if (verbatim) out = out indent "/// ~~~\n"
  return out
}

function Plain(indent,   i) {
  for (i = 1; i <= size; ++i) print indent "// " block[i]
}

# Follows the braces and parentheses of a line of code. scope[1..depth] says of each open brace whether it holds declarations.
function Follow(code,   i, c, head) {
  gsub(/"([^"\\]|\\.)*"/, "\"\"", code)
  gsub(/'([^'\\]|\\.)'/, "0", code)
  for (i = 1; i <= length(code); ++i) {
    c = substr(code, i, 1)
    if (c == "(") ++parens
    else if (c == ")") --parens
    if (c == "{") {
      scope[++depth] = statement ~ /(^|[ >])(namespace|class|struct|union|enum)( [^()=]*)?$/
      if (scope[depth]) statement = ""
      if (!scope[depth]) ++bodies
    } else if (c == "}") {
      if (depth > 0 && !scope[depth]) --bodies
      if (depth > 0 && (scope[depth] || parens == 0 && bodies == 0)) statement = ""
      --depth
      ended = 1
    } else if (c == ";" && parens == 0 && bodies == 0) {
      statement = ""
      ended = 1
    } else if (c != " " || statement != "") {
      statement = statement c
      if (c != " ") ended = 0
    }
  }
  if (statement != "") statement = statement " "
}

# Whether declarations can begin here.
function AtDeclaration() { return bodies == 0 && parens == 0 && statement == "" }

BEGIN { depth = bodies = parens = size = 0; statement = ""; group = ""; opening = 1 }

/^ *\/\/( |$)/ {
  match($0, /^ */)
  indent = substr($0, 1, RLENGTH)
  text = substr($0, RLENGTH + 3)
  sub(/^ /, "", text)
  block[++size] = text
  next
}

macro_goes_on {
  macro_goes_on = /\\$/
  print
  next
}

{
  line = $0
  if (opening && size > 0) {
    if (FILENAME ~ /\/hako\.h$/) print "/// @mainpage\n" Documentation("")
    print "/// @file\n" Documentation("")
    size = 0
  }
  opening = 0
  sub(/^ protected:/, " private:", line)
  gsub(/ HAKO_TRY| *HAKO_OR_NO_MEMORY| *HAKO_CATCH_NO_MEMORY\(.*\)$|HAKO_INLINE /, "", line)
  if ($0 != "" && line == "") {
    print ""
    next
  }

  if (size > 0) {
    if (line == "" || line ~ /^ *}/ || line ~ /^#(include|if|endif|pragma)/ || line ~ /^(extern template|static_assert)/ || !AtDeclaration() || block[1] ~ /^---- /) {
      Plain(indent)
      group = ""
    } else {
      group = Documentation(indent)
      printf "%s", group
    }
    size = 0
  } else if (line == "" || line ~ /^ *(public|private):/ || line ~ /^#(if|endif)/) {
    group = ""
  } else if (group != "" && AtDeclaration() && line !~ /^( *}|extern template|static_assert)|  \/\/ /) {
    printf "%s", group
  }
  if (AtDeclaration() && line ~ /^ *template <.*>  \/\/ /) {
    match(line, /  \/\/ /)
    print "///\n/// " Escape(substr(line, RSTART + 5))
    line = substr(line, 1, RSTART - 1)
  }

  if (line ~ /^#/) macro_goes_on = line ~ /\\$/
  if (line ~ /^ *friend [A-Za-z:]+;$/) line = ""
  if (line ~ /^#/ || line ~ /^ *(public|private):/) {  # no statement
    print line
    next
  }
  code = line
  comment = ""
  if (match(code, /  \/\/ /)) {
    comment = substr(code, RSTART + 5)
    code = substr(code, 1, RSTART - 1)
  }
  starts_in_body = bodies > 0
  opened = depth
  Follow(code)
  if (depth > opened && scope[depth]) group = ""
  if (comment != "" && !starts_in_body && bodies == 0 && parens == 0 && code !~ /^}/ && code !~ /[{(]$/) {
    if (sub(/^REQUIRES: /, "", comment)) comment = "@pre " Escape(comment)
    else comment = Escape(comment)
    print code "  ///< " comment
  } else {
    print line
  }
}
