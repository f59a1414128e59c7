# The target docs: the API reference, in html of the build tree. It shows every symbol of the headers below, and fails if one has no
# comment. Internal headers are left out.
find_package(Doxygen REQUIRED)

set(hako_docs_headers hako.h version.h text/record_text.h)
foreach(name comparator key_value lz4_codec page_codec status zstd_codec)
  list(APPEND hako_docs_headers base/${name}.h)
endforeach()
foreach(name any_file file memory_file memory_map_parallel_file path positional_parallel_file replace_file)
  list(APPEND hako_docs_headers file/${name}.h)
endforeach()
foreach(name condition query query_text row schema table_dbm value)
  list(APPEND hako_docs_headers table/${name}.h)
endforeach()
file(GLOB hako_dbm_headers RELATIVE ${PROJECT_SOURCE_DIR}/include/hako CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/hako/dbm/*.h)
list(FILTER hako_dbm_headers EXCLUDE REGEX "-inl\\.h$|/(common|positional_.*|redo_queue|snapshot_place)\\.h$")
list(APPEND hako_docs_headers ${hako_dbm_headers})

list(TRANSFORM hako_docs_headers PREPEND ${PROJECT_SOURCE_DIR}/include/hako/)
list(TRANSFORM hako_docs_headers REPLACE "(.+)" "\"\\1\"" OUTPUT_VARIABLE hako_docs_inputs)
list(JOIN hako_docs_inputs " " hako_docs_inputs)
configure_file(${CMAKE_CURRENT_LIST_DIR}/Doxyfile.in ${PROJECT_BINARY_DIR}/Doxyfile @ONLY)
add_custom_target(docs COMMAND Doxygen::doxygen ${PROJECT_BINARY_DIR}/Doxyfile VERBATIM
  COMMENT "The API reference: ${PROJECT_BINARY_DIR}/html/index.html")
